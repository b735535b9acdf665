"""What is to be written, and what was written for the same: kept for a day.

Equal input under equal settings gives one answer, whoever asks.
"""

from dataclasses import dataclass

import orjson

from core.keyring import Keyring
from core.settings import Settings
from services.composer import cache_names
from services.composer.post import MetadataField, Post, SourcedResult
from storage.redis.cache import Cache

# Of all that it takes, waiting for a worker included.
MAX_WRITING_SECONDS = 45.0
METADATA_CACHE_SECONDS = 24 * 3600
# Changed when the writers' rules change, so that nothing older is found.
_EDITION = "1"

# The fields of the answer, by name.
GeneratedFields = dict[str, str]


@dataclass(frozen=True)
class MetadataRequest:
    """The parts of the metadata that are wanted; without any, tweets."""

    post: Post
    wanted: frozenset[MetadataField] = frozenset()


class MetadataCache:
    """What was written, by the name of its commission."""

    def __init__(self, settings: Settings, keyring: Keyring, cache: Cache) -> None:
        self._settings = settings
        self._keyring = keyring
        self._cache = cache

    def name(self, commission: MetadataRequest) -> str:
        """The same for what has the same answer."""
        post = commission.post
        wanted = ",".join(sorted(commission.wanted)) or "tweets"
        return cache_names.cache_key(
            self._keyring, "written", _EDITION, *self._writer(), wanted, post.title, post.content
        )

    def find(self, name: str) -> SourcedResult[GeneratedFields] | None:
        text = self._cache.get(name)
        if text is None:
            return None
        found = orjson.loads(text)
        return SourcedResult(found["fields"], f"{found['source']}; cached")

    def keep(self, name: str, written: SourcedResult[GeneratedFields]) -> None:
        text = orjson.dumps({"fields": written.product, "source": written.source}).decode()
        self._cache.put(name, text, seconds=METADATA_CACHE_SECONDS)

    def _writer(self) -> tuple[str, ...]:
        given = self._settings
        if given.llm_provider == "offline":
            return ("offline",)
        return (
            given.llm_provider,
            str(given.llm_base_url),
            str(given.llm_model),
            str(given.llm_context_tokens),
        )
