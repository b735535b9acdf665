"""Requests of the composer's routes to its workers, their results, and the cache of results.

A request and its result travel as JSON. API and worker may be of different releases, so a payload's
keys keep their names and meaning. Equal input under equal settings has one result, whichever caller
sends it.
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

# For how many seconds a caller still waits. Raises once none does, so call it before each step
# that costs something.
SecondsLeft = Callable[[], float]


class WorkerRequest(Protocol):
    kind: ClassVar[RequestKind]
    # The longest wait for the result, the time in the queue included.
    max_seconds: ClassVar[float]

    def to_payload(self) -> dict[str, Any]: ...


# Keyed, so that a reader of Redis can't check whether a post with a guessed text was sent.
_PURPOSE = "composer-cache"


def cache_key(keyring: Keyring, *parts: str) -> str:
    """The cache key of a result that these parts alone decide; all callers share the entry."""
    message = bytearray()
    for part in parts:
        text = part.encode("utf-8", "surrogatepass")
        # The length before each part keeps ("ab", "c") apart from ("a", "bc").
        message += len(text).to_bytes(8, "big") + text
    return keyring.signer(_PURPOSE).digest(bytes(message)).hex()


METADATA_CACHE_SECONDS = 24 * 3600
# Part of each cache key: raise it when the writers' rules change, so that no older result is found.
_RULES_EDITION = "5"

OFFLINE = "offline"
_CACHED = "; cached"


@dataclass(frozen=True)
class MetadataRequest:
    """Asks for the wanted fields of a post's metadata; without any, for tweets."""

    kind: ClassVar[RequestKind] = RequestKind("composer.write", Queue.REQUEST)
    max_seconds: ClassVar[float] = 45.0

    post: Post
    wanted: frozenset[MetadataField] = frozenset()

    def to_payload(self) -> dict[str, Any]:
        return {
            "title": self.post.title,
            "content": self.post.content,
            "wanted": sorted(self.wanted),
        }

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> "MetadataRequest":
        post = Post(payload["title"], payload["content"])
        return cls(post, frozenset(map(MetadataField, payload["wanted"])))


@dataclass(frozen=True)
class MetadataResult:
    """The fields of the answer by name."""

    fields: dict[str, str]
    # The header ``Pressroom-Source``: `offline` or `openai/<model>`, with `; fallback`, `; cached`.
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
        """The key of the request's result, and the result itself if it is cached."""
        given = self.settings
        post = request.post
        writer: list[str] = [given.llm_provider]
        if given.llm_provider != "offline":
            writer += map(str, (given.llm_base_url, given.llm_model, given.llm_context_tokens))
        wanted = ",".join(sorted(request.wanted)) or "tweets"
        key = cache_key(
            self.keyring, "written", _RULES_EDITION, *writer, wanted, post.title, post.content
        )
        text = self.cache.get(key)
        if text is None:
            return key, None
        found = MetadataResult.from_payload(orjson.loads(text))
        return key, MetadataResult(found.fields, f"{found.source}{_CACHED}")

    def keep(self, key: str, result: MetadataResult) -> None:
        text = orjson.dumps(result.to_payload()).decode()
        self.cache.put(key, text, seconds=METADATA_CACHE_SECONDS)
