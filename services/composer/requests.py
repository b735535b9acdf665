"""Sends the API's requests to the composer's workers, and caches the results.

The API and the workers exchange JSON. The keys in a request's payload must never change, because
the API and a worker may run different releases. All callers share the cache, because equal input
and settings give equal results.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import orjson

from core.keyring import Keyring
from core.queues import Queue, RequestKind
from core.settings import Settings
from services.composer.text.post import MetadataField, Post
from storage.redis.cache import Cache

# Returns how many more seconds the callers wait for the result of a request. ``SecondsLeft`` raises
# an error if no caller is waiting anymore. A worker calls ``SecondsLeft`` before each expensive
# step.
SecondsLeft = Callable[[], float]

METADATA_CACHE_SECONDS = 24 * 3600
OFFLINE = "offline"
_CACHED_SUFFIX = "; cached"
# The purpose of the secret key that signs cache keys. If cache keys weren't signed, anyone who can
# read Redis could check whether a guessed text was sent to the composer.
_KEY_PURPOSE = "composer-cache"
# The version of the composer's writing rules. Each cache key contains this version. Change
# ``_RULES_VERSION`` together with the rules, so that results of the old rules are ignored.
_RULES_VERSION = "5"


class WorkerRequest(Protocol):
    kind: ClassVar[RequestKind]
    # The maximum time for which a caller waits for a result, including the time in the queue.
    max_seconds: ClassVar[float]

    def to_payload(self) -> dict[str, Any]: ...


def build_cache_key(keyring: Keyring, *parts: str) -> str:
    message = bytearray()
    for part in parts:
        text = part.encode("utf-8", "surrogatepass")
        # Prepend the length of each part, so that ("ab", "c") and ("a", "bc") give different cache
        # keys.
        message += len(text).to_bytes(8, "big") + text
    return keyring.signer(_KEY_PURPOSE).digest(bytes(message)).hex()


@dataclass(frozen=True)
class MetadataRequest:
    """A request for metadata fields of a post, or for tweets if ``fields`` is empty."""

    kind: ClassVar[RequestKind] = RequestKind("composer.write", Queue.REQUEST)
    max_seconds: ClassVar[float] = 45.0

    post: Post
    fields: frozenset[MetadataField] = frozenset()

    def to_payload(self) -> dict[str, Any]:
        return {
            "title": self.post.title,
            "content": self.post.content,
            "wanted": sorted(self.fields),
        }

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> "MetadataRequest":
        post = Post(payload["title"], payload["content"])
        return cls(post, frozenset(map(MetadataField, payload["wanted"])))


@dataclass(frozen=True)
class MetadataResult:
    fields: dict[str, str]
    # The header ``Pressroom-Source``, which names the writer of the texts. The source of a text is
    # `offline` or `openai/<model>`. `; fallback` is appended to the source if the offline writer
    # replaced a failed language model. `; cached` is appended to the source if the result comes
    # from the cache.
    source: str

    def to_payload(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> "MetadataResult":
        return cls(payload["fields"], payload["source"])


@dataclass(frozen=True)
class MetadataCache:
    settings: Settings
    keyring: Keyring
    cache: Cache

    def look_up(self, request: MetadataRequest) -> tuple[str, MetadataResult | None]:
        """Return the cache key of a metadata request, and the cached result if there is one."""
        settings = self.settings
        post = request.post
        writer: list[str] = [settings.llm_provider]
        if settings.llm_provider != "offline":
            writer += map(
                str, (settings.llm_base_url, settings.llm_model, settings.llm_context_tokens)
            )
        subject = ",".join(sorted(request.fields)) or "tweets"
        key = build_cache_key(
            self.keyring, "written", _RULES_VERSION, *writer, subject, post.title, post.content
        )
        text = self.cache.get(key)
        if text is None:
            return key, None
        cached = MetadataResult.from_payload(orjson.loads(text))
        return key, MetadataResult(cached.fields, f"{cached.source}{_CACHED_SUFFIX}")

    def store(self, key: str, result: MetadataResult) -> None:
        text = orjson.dumps(result.to_payload()).decode()
        self.cache.put(key, text, seconds=METADATA_CACHE_SECONDS)
