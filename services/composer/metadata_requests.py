"""Requests for metadata or tweets, their results, and the cache that keeps a result for a day.

Equal input under equal settings has one result, whichever caller sends it.
"""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import orjson

from core.keyring import Keyring
from core.lanes import Lane, RequestKind
from core.settings import Settings
from services.composer import cache_names
from services.composer.post import MetadataField, Post
from storage.redis.cache import Cache

METADATA_CACHE_SECONDS = 24 * 3600
# Part of each cache key: raise it when the writers' rules change, so that no older result is found.
_EDITION = "2"

OFFLINE = "offline"
_CACHED = "; cached"


@dataclass(frozen=True)
class MetadataRequest:
    """Asks for the wanted fields of a post's metadata; without any, for tweets."""

    kind: ClassVar[RequestKind] = RequestKind("composer.write", Lane.REQUEST)
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

    @property
    def is_fresh_of_model(self) -> bool:
        """Whether a language model was asked for it by the calls that wait for it now."""
        return not self.source.startswith(OFFLINE) and not self.source.endswith(_CACHED)

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
        given, post = self.settings, request.post
        writer: list[str] = [given.llm_provider]
        if given.llm_provider != "offline":
            writer += map(str, (given.llm_base_url, given.llm_model, given.llm_context_tokens))
        wanted = ",".join(sorted(request.wanted)) or "tweets"
        key = cache_names.cache_key(
            self.keyring, "written", _EDITION, *writer, wanted, post.title, post.content
        )
        text = self.cache.get(key)
        if text is None:
            return key, None
        found = MetadataResult.from_payload(orjson.loads(text))
        return key, MetadataResult(found.fields, f"{found.source}{_CACHED}")

    def keep(self, key: str, result: MetadataResult) -> None:
        text = orjson.dumps(result.to_payload()).decode()
        self.cache.put(key, text, seconds=METADATA_CACHE_SECONDS)
