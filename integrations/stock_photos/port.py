"""The port of providers of stock photos: a photo, its credit, and the quota of a provider."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson

_WEB_URL = re.compile(r"https?://[^\s/\"<>\\]+(?:/[^\s\"<>\\]*)?")
MAX_SHOWN_CHARACTERS = 300
_MAX_SIDE = 1_000_000


@dataclass(frozen=True)
class PhotoCredit:
    """The people whom the provider's terms ask to name beside a photo, with links to them.

    Attributes:
        title: of the photo, where the licence asks for it, and the page of it.
        provider: the provider that is named itself.
        licence: its name, where the photo has one of its own.
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
        endpoint: the argument for ``StockPhotos.photo_at``.
        small_url: the URL of a small copy, at one of ``StockPhotos.image_origins``.
        shows: the alternative text.
    """

    endpoint: str
    small_url: str
    width: int
    height: int
    shows: str
    credit: PhotoCredit


def photos_in(payload: str, read: Callable[[Any], FoundPhoto | None]) -> list[FoundPhoto]:
    """The photos of a search's payload that the provider's adapter can read."""
    results = inside(orjson.loads(payload), "results")
    photos = map(read, results if isinstance(results, list) else [])
    return [photo for photo in photos if photo is not None]


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def web_url(value: object) -> str | None:
    """A URL that a page may link to; ``None`` for anything else that a provider sends."""
    return value if isinstance(value, str) and _WEB_URL.fullmatch(value) else None


def text_of(value: object) -> str | None:
    """A provider's text of one line, cut to a length that fits below a photo."""
    if not isinstance(value, str):
        return None
    return " ".join(value.split())[:MAX_SHOWN_CHARACTERS] or None


def inside(found: object, *names: str) -> Any:
    """Return what an object holds under these names, one in the other; ``None`` for nothing."""
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def side_of(photo: object, name: str) -> int:
    """A side in pixels; 0 where the provider says none."""
    value = inside(photo, name)
    return value if isinstance(value, int) and 0 < value < _MAX_SIDE else 0


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
        """The photos of a payload, as people are shown them. A photo without a part is left out."""

    def photo_at(self, endpoint: str) -> Photo:
        """The photo whose download endpoint this is, exactly as a search gave it. Sends nothing.

        Raises ``stockphoto.endpoint_not_allowed`` (malformed) for anything else.
        """

    def download_url(self, photo: Photo) -> str:
        """Report the use of a photo, and get the URL of its file.

        Raises ``stockphoto.not_found``.
        """
