"""Searches for stock photos, reports the use of a photo to its provider, and copies photos."""

import hashlib
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import redis
from redis.exceptions import RedisError

from core.errors.media import ATTACHMENT_UNSUPPORTED_TYPE
from core.ids import AccountId
from core.keyring import Keyring
from core.logging import get_logger
from core.queues import Queue, RequestKind
from integrations.stock_photos.port import Photo, PhotoProviderName, Quota
from integrations.stock_photos.registry import StockPhotoProviders
from services.attachments.images.outcome import sniff_image_type
from services.attachments.upload import Upload, accept_upload
from services.composer import requests
from services.composer.requests import SecondsLeft
from services.jobs.idempotency import AcceptedJob, IdempotencyKey
from services.jobs.kinds import register_request_kind
from storage.redis.cache import Cache
from storage.redis.request_work import RequestLease
from storage.resources import Resources

log = get_logger(__name__)

MAX_PHOTO_SECONDS = 20.0
PHOTO_CACHE_SECONDS = 3600
# How long a provider's reported quota is stored. After an hour, the provider has probably renewed
# its quota.
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
    # The provider's response as JSON.
    payload: str
    # The header ``Pressroom-Source`` contains the provider's name, followed by `; cached` if the
    # result comes from the cache.
    source: str

    def to_payload(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> "PhotoSearchResult":
        return cls(payload["payload"], payload["source"])


@dataclass(frozen=True)
class PhotoUse:
    """A request to report the use of a photo to its provider, and to get the photo's file URL."""

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
class PhotoCopy:
    """A request to copy a stock photo into the images of the account ``account_id``."""

    kind: ClassVar[RequestKind] = RequestKind("photos.copy", Queue.PHOTOS)
    max_seconds: ClassVar[float] = MAX_PHOTO_SECONDS

    provider: PhotoProviderName
    photo: Photo
    account_id: AccountId

    def to_payload(self) -> dict[str, Any]:
        return {**PhotoUse(self.provider, self.photo).to_payload(), "user_id": self.account_id}

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> "PhotoCopy":
        use = PhotoUse.from_payload(payload)
        return cls(use.provider, use.photo, payload["user_id"])


@dataclass(frozen=True)
class CachedStockPhotos:
    providers: StockPhotoProviders
    keyring: Keyring
    cache: Cache

    def look_up(self, search: PhotoSearch) -> tuple[str, PhotoSearchResult | None]:
        origin = self.providers.get_provider(search.provider).origin
        key = requests.build_cache_key(
            self.keyring, "photos", origin, search.query, str(search.page), str(search.limit)
        )
        text = self.cache.get(key)
        if text is None:
            return key, None
        return key, PhotoSearchResult(text, f"{search.provider}; cached")

    def search(self, search: PhotoSearch, seconds_left: SecondsLeft) -> PhotoSearchResult:
        # Check the cache again, because another worker may have finished the same search in the
        # meantime.
        key, result = self.look_up(search)
        if result is not None:
            return result
        seconds_left()
        provider = self.providers.get_provider(search.provider)
        payload = provider.search(search.query, page=search.page, limit=search.limit)
        self.cache.put(key, payload, seconds=PHOTO_CACHE_SECONDS)
        return PhotoSearchResult(payload, search.provider)

    def download_url(self, use: PhotoUse, seconds_left: SecondsLeft) -> str:
        """Report the use of a photo to its provider, and return the URL of its file.

        The URL is not cached, because the provider counts each use of a photo.
        """
        seconds_left()
        return self.providers.get_provider(use.provider).download_url(use.photo)

    def copy(self, copy: PhotoCopy, lease: RequestLease, resources: Resources) -> AcceptedJob:
        lease.seconds_left()
        content = self.providers.get_provider(copy.provider).download_copy(copy.photo)
        # If no API call waits for the photo any longer, ``seconds_left`` raises an error, so that
        # the photo isn't stored.
        lease.seconds_left()
        image_type = sniff_image_type(content)
        if image_type is None:
            raise ATTACHMENT_UNSUPPORTED_TYPE()
        filename = f"{copy.provider}-{copy.photo.id}.{image_type}"
        # If the worker crashes, another worker may process the same request again. The idempotency
        # key ensures that Pressroom stores the photo only once.
        fingerprint = hashlib.sha256(lease.request_id.encode()).digest()
        key = IdempotencyKey(copy.account_id, PhotoCopy.kind.task, lease.request_id, fingerprint)
        # Create smaller copies of the photo, as for images that are uploaded in the console.
        new_upload = Upload(filename, content, encrypted=False, with_renditions=True)
        return accept_upload(resources, copy.account_id, new_upload, key=key)


def _create_photos(resources: Resources) -> CachedStockPhotos:
    providers = StockPhotoProviders(resources.settings, partial(record_quotas, resources.redis))
    return CachedStockPhotos(providers, resources.keyring, resources.cache)


def _search(resources: Resources, lease: RequestLease) -> dict[str, Any]:
    search = PhotoSearch.from_payload(lease.payload)
    return resources.shared(_create_photos).search(search, lease.seconds_left).to_payload()


def _download_url(resources: Resources, lease: RequestLease) -> dict[str, Any]:
    use = PhotoUse.from_payload(lease.payload)
    return {"url": resources.shared(_create_photos).download_url(use, lease.seconds_left)}


def _copy(resources: Resources, lease: RequestLease) -> dict[str, Any]:
    photos = resources.shared(_create_photos)
    return asdict(photos.copy(PhotoCopy.from_payload(lease.payload), lease, resources))


register_request_kind(PhotoSearch.kind, _search)
register_request_kind(PhotoUse.kind, _download_url)
register_request_kind(PhotoCopy.kind, _copy)


def record_quotas(
    client: redis.Redis, provider: PhotoProviderName, quotas: tuple[Quota, ...]
) -> None:
    """Store the latest quotas of a stock photo provider in Redis for all processes."""
    if not quotas:
        return
    key = _build_quotas_key(provider)
    try:
        with client.pipeline(transaction=False) as pipeline:
            for quota in quotas:
                pipeline.hset(key, quota.window, f"{quota.remaining}/{quota.limit}")
            pipeline.expire(key, _QUOTA_SECONDS)
            pipeline.execute()
    except RedisError as error:
        log.warning("stockphoto.quota_not_noted", reason=type(error).__name__)


def read_quotas(client: redis.Redis) -> dict[PhotoProviderName, list[Quota]]:
    quotas: dict[PhotoProviderName, list[Quota]] = {}
    for provider in PhotoProviderName:
        stored: dict[Any, Any] = client.hgetall(_build_quotas_key(provider))
        quotas[provider] = []
        for window, text in stored.items():
            remaining, _, limit = text.partition(b"/")
            quotas[provider].append(Quota(window.decode(), int(limit), int(remaining)))
    return quotas


def _build_quotas_key(provider: PhotoProviderName) -> str:
    return f"pressroom:stockphoto-quotas:{provider}"
