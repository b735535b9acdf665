"""Stock photos: searches, kept for an hour, and the use of a photo, which its provider is told."""

from collections.abc import Callable
from typing import Any

import redis
from redis.exceptions import RedisError

from core.keyring import Keyring
from core.logging import get_logger
from integrations.stock_photos.port import Photo, PhotoProviderName, Quota
from integrations.stock_photos.registry import StockPhotoProviders
from services.composer import cache_names
from services.composer.post import SourcedResult
from storage.redis.cache import Cache

log = get_logger(__name__)

# Seconds that somebody still waits; raises when nobody does.
SecondsLeft = Callable[[], float]

MAX_PHOTO_SECONDS = 20.0
PHOTO_CACHE_SECONDS = 3600
# A quota that was seen longer ago says nothing: the shortest window that counts is an hour.
_QUOTA_SECONDS = 3600


class CachedStockPhotos:
    def __init__(self, providers: StockPhotoProviders, keyring: Keyring, cache: Cache) -> None:
        self.providers = providers
        self._keyring = keyring
        self._cache = cache

    def name(self, provider: PhotoProviderName, query: str, page: int, limit: int) -> str:
        origin = self.providers.named(provider).origin
        return cache_names.cache_key(self._keyring, "photos", origin, query, str(page), str(limit))

    def kept(self, name: str, provider: PhotoProviderName) -> SourcedResult[str] | None:
        text = self._cache.get(name)
        return None if text is None else SourcedResult(text, f"{provider}; cached")

    def search(
        self,
        provider: PhotoProviderName,
        query: str,
        *,
        page: int,
        limit: int,
        patience: SecondsLeft,
    ) -> SourcedResult[str]:
        """The provider's payload, JSON, as it came. Raises what its port raises."""
        name = self.name(provider, query, page, limit)
        found = self.kept(name, provider)
        if found is not None:
            return found
        patience()
        payload = self.providers.named(provider).search(query, page=page, limit=limit)
        self._cache.put(name, payload, seconds=PHOTO_CACHE_SECONDS)
        return SourcedResult(payload, provider)

    def download_url(self, provider: PhotoProviderName, photo: Photo, patience: SecondsLeft) -> str:
        """Never kept: the provider wants to hear of each use."""
        patience()
        return self.providers.named(provider).download_url(photo)


def note_quotas(
    client: redis.Redis, provider: PhotoProviderName, quotas: tuple[Quota, ...]
) -> None:
    """Keep what a provider said of its quotas where every process can read it."""
    if not quotas:
        return
    seen = {quota.window: f"{quota.remaining}/{quota.limit}" for quota in quotas}
    try:
        with client.pipeline(transaction=False) as together:
            for window, text in seen.items():
                together.hset(_quotas_of(provider), window, text)
            together.expire(_quotas_of(provider), _QUOTA_SECONDS)
            together.execute()
    except RedisError as error:
        log.warning("stockphoto.quota_not_noted", reason=type(error).__name__)


def noted_quotas(client: redis.Redis) -> dict[PhotoProviderName, list[Quota]]:
    noted: dict[PhotoProviderName, list[Quota]] = {}
    for provider in PhotoProviderName:
        seen: dict[Any, Any] = client.hgetall(_quotas_of(provider))
        noted[provider] = [_quota(window, text) for window, text in seen.items()]
    return noted


def _quota(window: bytes, text: bytes) -> Quota:
    remaining, _, limit = text.partition(b"/")
    return Quota(window.decode(), int(limit), int(remaining))


def _quotas_of(provider: PhotoProviderName) -> str:
    return f"pressroom:stockphoto-quotas:{provider}"
