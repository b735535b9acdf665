"""The interface of stock photo providers, with types for photos, credits and request quotas."""

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
    """The attribution that must be shown next to a photo, such as the name of its author.

    Attributes:
        title: the photo's title, if the licence requires it.
        provider: the provider's name, if a photo's attribution must contain the name.
        licence: ``None`` if all photos of the provider have the same licence.
    """

    author: str
    author_url: str | None = None
    title: str | None = None
    title_url: str | None = None
    provider: str | None = None
    provider_url: str | None = None
    licence: str | None = None
    licence_url: str | None = None

    def describe(self) -> str:
        """Return one line of plain text, without links."""
        line = f"“{self.title}” by {self.author}" if self.title else f"Photo by {self.author}"
        if self.provider:
            line += f" on {self.provider}"
        return f"{line}, {self.licence}" if self.licence else line


@dataclass(frozen=True)
class FoundPhoto:
    """A photo in a search result.

    Attributes:
        endpoint: the URL that identifies the photo, for ``StockPhotos.parse_endpoint``.
        small_url: the thumbnail's URL, on one of ``StockPhotos.image_origins``.
        shows: the photo's alternative text.
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
    """The number of requests that a provider allows per time window."""

    window: str
    limit: int
    remaining: int


@dataclass(frozen=True)
class Photo:
    """``mark`` is the ``ixid`` from a search result, which Unsplash requires when the photo is
    used.
    """

    id: str
    mark: str = ""


class StockPhotos(Protocol):
    """A stock photo provider.

    Calls above the request quota raise ``stockphoto.limit_reached`` with a ``Retry-After``. If the
    provider fails, calls raise ``stockphoto.unavailable``, ``stockphoto.too_slow`` or
    ``stockphoto.failed``. If the provider rejects a request as invalid, calls raise
    ``stockphoto.refused``.

    Attributes:
        origin: the base URL of the provider's API, which is part of each cache key.
        allows_copies: whether the provider's terms allow Pressroom to store copies of photos.
    """

    name: PhotoProviderName
    origin: str
    image_origins: tuple[str, ...]
    allows_copies: bool

    def search(self, query: str, *, page: int, limit: int) -> str:
        """Return the provider's JSON reply to a search."""

    def parse_photos(self, payload: str) -> list[FoundPhoto]:
        """Return the photos in a search reply. Photos with missing fields are skipped."""

    def parse_endpoint(self, endpoint: str) -> Photo:
        """Return the photo that an endpoint URL identifies, without sending a request, or raise
        ``stockphoto.endpoint_not_allowed``.
        """

    def download_url(self, photo: Photo) -> str:
        """Report the use of a photo to the provider, and return the URL of its file, or raise
        ``stockphoto.not_found``.
        """

    def download_copy(self, photo: Photo) -> bytes:
        """Return the file. Raise ``stockphoto.copies_forbidden``, ``stockphoto.not_found``, or
        ``attachment.too_large`` for a file above the size limit of uploads.
        """


def parse_results(payload: str, parse: Callable[[Any], FoundPhoto | None]) -> list[FoundPhoto]:
    results = get_nested(orjson.loads(payload), "results")
    photos = map(parse, results if isinstance(results, list) else [])
    return [photo for photo in photos if photo is not None]


def get_origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def parse_web_url(value: object) -> str | None:
    """Return ``value`` if a page may link to it, or else ``None``."""
    return value if isinstance(value, str) and _WEB_URL.fullmatch(value) else None


def parse_text(value: object) -> str | None:
    """Return a single line, shortened to fit below a photo."""
    if not isinstance(value, str):
        return None
    return " ".join(value.split())[:MAX_SHOWN_CHARACTERS] or None


def get_nested(value: object, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def parse_side(photo: object, name: str) -> int:
    """Return a photo's width or height in pixels, or 0 if the provider reports no valid number."""
    value = get_nested(photo, name)
    return value if isinstance(value, int) and 0 < value < _MAX_SIDE_PIXELS else 0
