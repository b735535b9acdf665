"""Photos that a person looks for on the composer's page, and the one that they use."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from api.composing.composer_calls import ComposerCaller
from api.limits.bulkheads import REQUESTS
from api.state import State
from integrations.stock_photos.found_photos import FoundPhoto
from integrations.stock_photos.port import PhotoProviderName
from services.composer.photos import PhotoSearch, PhotoSearchResult, PhotoUse

PHOTOS_ON_PAGE = 12
MAX_PHOTO_PAGE = 1_000
PROVIDERS = {PhotoProviderName.UNSPLASH: "Unsplash", PhotoProviderName.OPENVERSE: "Openverse"}


@dataclass(frozen=True)
class PhotoFinds:
    search: PhotoSearch
    photos: list[FoundPhoto]

    @classmethod
    def of_result(cls, state: State, search: PhotoSearch, result: PhotoSearchResult) -> Self:
        photos = state.photos.providers.named(search.provider).found_in(result.payload)
        return cls(search, photos)

    @property
    def has_more(self) -> bool:
        return len(self.photos) >= PHOTOS_ON_PAGE and self.search.page < MAX_PHOTO_PAGE

    @property
    def fields(self) -> dict[str, str]:
        """The form's fields that let the same photos be shown again."""
        return {
            "found_words": self.search.query,
            "found_provider": self.search.provider,
            "found_page": str(self.search.page),
        }


def provider_of(state: State, typed: str) -> PhotoProviderName:
    """The provider that was chosen; the usual one for any other word."""
    names = state.photos.providers.names
    return next((name for name in names if name == typed), names[0])


def search_of(state: State, words: str, provider: str, page: str) -> PhotoSearch:
    is_number = page.isascii() and page.isdigit() and len(page) <= len(str(MAX_PHOTO_PAGE))
    number = min(max(int(page), 1), MAX_PHOTO_PAGE) if is_number else 1
    return PhotoSearch(provider_of(state, provider), words, number, PHOTOS_ON_PAGE)


def search_before(state: State, typed: Mapping[str, str], page: str = "") -> PhotoSearch | None:
    """The search whose photos the page showed, or another page of it."""
    words = typed.get("found_words", "")
    page = page or typed.get("found_page", "")
    return search_of(state, words, typed.get("found_provider", ""), page) if words else None


async def find(calls: ComposerCaller, search: PhotoSearch) -> PhotoFinds:
    return PhotoFinds.of_result(calls.state, search, await calls.photos(search))


async def found_before(state: State, typed: Mapping[str, str]) -> PhotoFinds | None:
    """The photos that the page showed already, as far as they are cached: that asks nobody."""
    search = search_before(state, typed)
    if search is None:
        return None
    _, cached = await REQUESTS.run(state.photos.look_up, search)
    return None if cached is None else PhotoFinds.of_result(state, search, cached)


async def url_of_used(calls: ComposerCaller, provider: str, endpoint: str) -> str:
    """The file of a photo; raises ``stockphoto.endpoint_not_allowed`` and what the call does."""
    name = provider_of(calls.state, provider)
    photo = calls.state.photos.providers.named(name).photo_at(endpoint)
    return await calls.url_of_photo(PhotoUse(name, photo))
