"""Defines the requests from the API to the composer's workers, and caches the results.

Requests and results are sent as JSON. The API and the worker may run different releases, so the
keys of a payload must keep their names and meanings. All callers share the cached results, because
equal input under equal settings has an equal result.
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

# A function that returns how many seconds callers still wait for the result. The function raises an
# error if no caller waits anymore. Workers therefore call the function before each expensive step.
SecondsLeft = Callable[[], float]

METADATA_CACHE_SECONDS = 24 * 3600
OFFLINE = "offline"
_CACHED_SUFFIX = "; cached"
# The purpose of the key that signs cache keys. Without a secret key, a reader of Redis could check
# whether a guessed text was sent.
_KEY_PURPOSE = "composer-cache"
# The version of the writers' rules, which is part of each cache key. Change the version together
# with the rules, so that results under older rules are ignored.
_RULES_VERSION = "5"


class WorkerRequest(Protocol):
    """A request that a worker answers."""

    kind: ClassVar[RequestKind]
    # The longest wait for the result, including the time in the queue.
    max_seconds: ClassVar[float]

    def to_payload(self) -> dict[str, Any]: ...


def build_cache_key(keyring: Keyring, *parts: str) -> str:
    """Return the cache key of a result that depends only on these parts."""
    message = bytearray()
    for part in parts:
        text = part.encode("utf-8", "surrogatepass")
        # Prepend the length of each part, so that ("ab", "c") and ("a", "bc") have different keys.
        message += len(text).to_bytes(8, "big") + text
    return keyring.signer(_KEY_PURPOSE).digest(bytes(message)).hex()


@dataclass(frozen=True)
class MetadataRequest:
    """A request for some fields of a post's metadata, or for tweets if ``fields`` is empty."""

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
    """The result of a metadata request, with the texts by the name of their field."""

    fields: dict[str, str]
    # The value of the header ``Pressroom-Source``. The value is `offline` or `openai/<model>`, and
    # may end with `; fallback` or `; cached`.
    source: str

    def to_payload(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> "MetadataResult":
        return cls(payload["fields"], payload["source"])


@dataclass(frozen=True)
class MetadataCache:
    """The cache of metadata results in Redis."""

    settings: Settings
    keyring: Keyring
    cache: Cache

    def look_up(self, request: MetadataRequest) -> tuple[str, MetadataResult | None]:
        """Return the cache key of the request's result, and the result if the cache has it."""
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
