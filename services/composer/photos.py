"""Stock photos: cached searches, the use of a photo, and the quotas that providers tell."""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import redis
from redis.exceptions import RedisError

from core.keyring import Keyring
from core.logging import get_logger
from core.queues import Queue, RequestKind
from integrations.stock_photos.port import Photo, PhotoProviderName, Quota
from integrations.stock_photos.registry import StockPhotoProviders
from services.composer import requests
from services.composer.requests import SecondsLeft
from services.jobs.kinds import register_request_kind
from storage.redis.cache import Cache
from storage.redis.request_work import RequestLease
from storage.resources import Resources

log = get_logger(__name__)

MAX_PHOTO_SECONDS = 20.0
PHOTO_CACHE_SECONDS = 3600
# A quota that was told longer ago says nothing: the shortest window that counts is an hour.
_QUOTA_SECONDS = 3600


@dataclass(frozen=True)
class PhotoSearch:
    kind: ClassVar[RequestKind] = RequestKind("photos.search", Queue.PHOTOS)
    max_seconds: ClassVar[float] = MAX_PHOTO_SECONDS

    provider: PhotoProviderName
    query: str
    page: int
    limit: int

    def to_payload(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> "PhotoSearch":
        provider = PhotoProviderName(payload["provider"])
        return cls(provider, payload["query"], payload["page"], payload["limit"])


@dataclass(frozen=True)
class PhotoSearchResult:
    # JSON, as the provider sent it.
    payload: str
    # The header ``Pressroom-Source``: the provider, with `; cached`.
    source: str

    def to_payload(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> "PhotoSearchResult":
        return cls(payload["payload"], payload["source"])


@dataclass(frozen=True)
class PhotoUse:
    """Tells the provider that a photo is used, and asks for the URL of its file."""

    kind: ClassVar[RequestKind] = RequestKind("photos.download_url", Queue.PHOTOS)
    max_seconds: ClassVar[float] = MAX_PHOTO_SECONDS

    provider: PhotoProviderName
    photo: Photo

    def to_payload(self) -> dict[str, Any]:
        return {"provider": self.provider, "id": self.photo.id, "mark": self.photo.mark}

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> "PhotoUse":
        return cls(PhotoProviderName(payload["provider"]), Photo(payload["id"], payload["mark"]))


@dataclass(frozen=True)
class CachedStockPhotos:
    providers: StockPhotoProviders
    keyring: Keyring
    cache: Cache

    def look_up(self, search: PhotoSearch) -> tuple[str, PhotoSearchResult | None]:
        """The key of the search's result, and the result itself if it is cached."""
        origin = self.providers.get_provider(search.provider).origin
        key = requests.cache_key(
            self.keyring, "photos", origin, search.query, str(search.page), str(search.limit)
        )
        text = self.cache.get(key)
        if text is None:
            return key, None
        return key, PhotoSearchResult(text, f"{search.provider}; cached")

    def search(self, search: PhotoSearch, seconds_left: SecondsLeft) -> PhotoSearchResult:
        """Raises what the port of stock photos raises."""
        # The API has looked too, but an equal search may have ended since.
        key, result = self.look_up(search)
        if result is not None:
            return result
        seconds_left()
        provider = self.providers.get_provider(search.provider)
        payload = provider.search(search.query, page=search.page, limit=search.limit)
        self.cache.put(key, payload, seconds=PHOTO_CACHE_SECONDS)
        return PhotoSearchResult(payload, search.provider)

    def download_url(self, use: PhotoUse, seconds_left: SecondsLeft) -> str:
        """Never cached: the provider counts each use."""
        seconds_left()
        return self.providers.get_provider(use.provider).download_url(use.photo)


def _photos(resources: Resources) -> CachedStockPhotos:
    providers = StockPhotoProviders(resources.settings, partial(note_quotas, resources.redis))
    return CachedStockPhotos(providers, resources.keyring, resources.cache)


def _search(resources: Resources, lease: RequestLease) -> dict[str, Any]:
    search = PhotoSearch.from_payload(lease.payload)
    return resources.shared(_photos).search(search, lease.seconds_left).to_payload()


def _download_url(resources: Resources, lease: RequestLease) -> dict[str, Any]:
    use = PhotoUse.from_payload(lease.payload)
    return {"url": resources.shared(_photos).download_url(use, lease.seconds_left)}


register_request_kind(PhotoSearch.kind, _search)
register_request_kind(PhotoUse.kind, _download_url)


def note_quotas(
    client: redis.Redis, provider: PhotoProviderName, quotas: tuple[Quota, ...]
) -> None:
    """Store a provider's latest quotas in Redis, where every process can read them."""
    if not quotas:
        return
    key = _quotas_key(provider)
    try:
        with client.pipeline(transaction=False) as together:
            for quota in quotas:
                together.hset(key, quota.window, f"{quota.remaining}/{quota.limit}")
            together.expire(key, _QUOTA_SECONDS)
            together.execute()
    except RedisError as error:
        log.warning("stockphoto.quota_not_noted", reason=type(error).__name__)


def noted_quotas(client: redis.Redis) -> dict[PhotoProviderName, list[Quota]]:
    noted: dict[PhotoProviderName, list[Quota]] = {}
    for provider in PhotoProviderName:
        seen: dict[Any, Any] = client.hgetall(_quotas_key(provider))
        noted[provider] = []
        for window, text in seen.items():
            remaining, _, limit = text.partition(b"/")
            noted[provider].append(Quota(window.decode(), int(limit), int(remaining)))
    return noted


def _quotas_key(provider: PhotoProviderName) -> str:
    return f"pressroom:stockphoto-quotas:{provider}"
