"""The interface of stock photo providers, and types for photos, credits and request quotas."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson

_WEB_URL = re.compile(r"https?://[^\s/\"<>\\]+(?:/[^\s\"<>\\]*)?")
MAX_SHOWN_CHARACTERS = 300
_MAX_SIDE_PIXELS = 1_000_000


@dataclass(frozen=True)
class PhotoCredit:
    """The credit that must be shown next to a photo.

    Attributes:
        title: the title of the photo, if the licence requires that the title is shown.
        title_url: the URL of the page that shows the photo on the provider's website.
        provider: the name of the photo provider, if the credit must contain the name.
        licence: the name of the photo's licence, or ``None`` if all photos of the provider have the
            same licence.
    """

    author: str
    author_url: str | None = None
    title: str | None = None
    title_url: str | None = None
    provider: str | None = None
    provider_url: str | None = None
    licence: str | None = None
    licence_url: str | None = None


@dataclass(frozen=True)
class FoundPhoto:
    """A photo in the results of a search.

    Attributes:
        endpoint: the URL that identifies the photo, and that ``StockPhotos.parse_endpoint``
            accepts.
        small_url: the URL of the photo's thumbnail, on one of ``StockPhotos.image_origins``.
        shows: the alternative text of the photo.
    """

    endpoint: str
    small_url: str
    width: int
    height: int
    shows: str
    credit: PhotoCredit


class PhotoProviderName(StrEnum):
    UNSPLASH = "unsplash"
    OPENVERSE = "openverse"


@dataclass(frozen=True)
class Quota:
    """How many requests a stock photo provider allows per time window, as the provider reports."""

    window: str
    limit: int
    remaining: int


@dataclass(frozen=True)
class Photo:
    """The data that identifies a photo at a stock photo provider.

    Attributes:
        mark: the text (``ixid``) that Unsplash puts into the links of search results, and requires
            when a photo is used.
    """

    id: str
    mark: str = ""


class StockPhotos(Protocol):
    """A stock photo provider.

    Calls that exceed the request quota raise ``stockphoto.limit_reached`` (unavailable) with the
    provider's ``Retry-After``. Calls raise ``stockphoto.unavailable``, ``stockphoto.too_slow`` or
    ``stockphoto.failed`` (provider_failed) if the photo provider fails. Calls raise
    ``stockphoto.refused`` (malformed) if the photo provider rejects the request as invalid.

    Attributes:
        origin: the base URL of the provider's API, which is part of the cache key of every search.
        image_origins: the origins from which browsers load the thumbnails of photos.
    """

    name: PhotoProviderName
    origin: str
    image_origins: tuple[str, ...]

    def search(self, query: str, *, page: int, limit: int) -> str:
        """Return the provider's JSON reply to a search, unchanged."""

    def parse_photos(self, payload: str) -> list[FoundPhoto]:
        """Return the photos in the reply to a search, and skip incomplete photos."""

    def parse_endpoint(self, endpoint: str) -> Photo:
        """Return the photo that the endpoint URL identifies, without sending a request.

        Raises ``stockphoto.endpoint_not_allowed`` (malformed) for a URL that is not a photo
        endpoint.
        """

    def download_url(self, photo: Photo) -> str:
        """Report the use of a photo to the provider, and return the URL of the photo's file.

        Raises ``stockphoto.not_found``.
        """


def parse_results(payload: str, parse: Callable[[Any], FoundPhoto | None]) -> list[FoundPhoto]:
    """Return the photos in a search reply, except photos for which ``parse`` returns ``None``."""
    results = get_nested(orjson.loads(payload), "results")
    photos = map(parse, results if isinstance(results, list) else [])
    return [photo for photo in photos if photo is not None]


def get_origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def parse_web_url(value: object) -> str | None:
    """Return ``value`` if it is a URL to which a page may link, or else ``None``."""
    return value if isinstance(value, str) and _WEB_URL.fullmatch(value) else None


def parse_text(value: object) -> str | None:
    """Return a provider's text as a single line, shortened to fit below a photo."""
    if not isinstance(value, str):
        return None
    return " ".join(value.split())[:MAX_SHOWN_CHARACTERS] or None


def get_nested(value: object, *names: str) -> Any:
    """Return the value at a path of keys in a nested mapping, or ``None`` if a key is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def parse_side(photo: object, name: str) -> int:
    """Return a photo's width or height in pixels, or 0 if the provider reports no valid number."""
    value = get_nested(photo, name)
    return value if isinstance(value, int) and 0 < value < _MAX_SIDE_PIXELS else 0
