from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from integrations.stock_photos.found_photos import FoundPhoto


class PhotoProviderName(StrEnum):
    UNSPLASH = "unsplash"
    OPENVERSE = "openverse"


@dataclass(frozen=True)
class Quota:
    """The number of requests that a provider grants in a window of time, as it said last."""

    window: str
    limit: int
    remaining: int


@dataclass(frozen=True)
class Photo:
    """A photo at its provider; ``mark`` is what the search's link carried beside its id."""

    id: str
    mark: str = ""


class StockPhotos(Protocol):
    """Raises ``stockphoto.limit_reached`` (unavailable, with the provider's ``Retry-After``),
    ``stockphoto.unavailable``, ``stockphoto.too_slow``, ``stockphoto.failed`` (provider_failed) and
    ``stockphoto.refused`` (malformed) for a request that makes no sense to the provider."""

    name: PhotoProviderName
    # The base URL of its API; part of the key of a cached search.
    origin: str
    # From where browsers load its small pictures.
    image_origins: tuple[str, ...]

    def search(self, query: str, *, page: int, limit: int) -> str:
        """The provider's payload, JSON, as it came."""

    def found_in(self, payload: str) -> list[FoundPhoto]:
        """The photos of a payload, as people are shown them. One that lacks a part is left out."""

    def photo_at(self, endpoint: str) -> Photo:
        """The photo whose download endpoint this is, exactly as a search gave it. Sends nothing.

        Raises ``stockphoto.endpoint_not_allowed`` (malformed) for anything else.
        """

    def download_url(self, photo: Photo) -> str:
        """Report the use of a photo, and get the URL of its file.

        Raises ``stockphoto.not_found``.
        """
