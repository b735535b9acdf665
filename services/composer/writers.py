"""Who writes about a post: the language model of the settings, or the offline writer.

When a model fails the offline writer takes its place, unless the settings say that the caller is
told. What stood in for a model isn't kept, since the model may be back at the next call.
"""

from collections.abc import Callable
from dataclasses import replace

from core.errors import DomainError, Kind
from core.logging import get_logger
from core.settings import Settings
from integrations.llm.port import CompletionReply, CompletionRequest, LanguageModel
from services.composer import model, offline
from services.composer.metadata_requests import (
    MAX_WRITING_SECONDS,
    GeneratedFields,
    MetadataCache,
    MetadataRequest,
)
from services.composer.post import PlainPost, PostMetadata, SourcedResult
from services.composer.text import markup

log = get_logger(__name__)

OFFLINE = "offline"
# Left for the offline writer by a model that takes too long, and for telling that it did.
_MAX_SPARE_SECONDS = 5.0
_SPARE_SHARE = 0.25

# What a model's failure looks like; anything else is a fault of ours.
_FAILURES = frozenset({Kind.PROVIDER_FAILED, Kind.UNAVAILABLE, Kind.TOO_SLOW})

# Seconds that somebody still waits; raises when nobody does.
SecondsLeft = Callable[[], float]


class MetadataWriter:
    """``llm`` is None where the offline writer is the settings' choice."""

    def __init__(self, settings: Settings, shelf: MetadataCache, llm: LanguageModel | None) -> None:
        self._settings = settings
        self._shelf = shelf
        self._llm = llm

    def write(
        self, commission: MetadataRequest, patience: SecondsLeft
    ) -> SourcedResult[GeneratedFields]:
        """Raises what the language model's port raises, where the settings want it told."""
        name = self._shelf.name(commission)
        found = self._shelf.find(name)
        if found is not None:
            return found
        patience()
        plain = markup.read(commission.post)
        if self._llm is not None:
            written = self._by_model(commission, plain, self._llm, patience)
        else:
            written = SourcedResult(_offline(commission, plain), OFFLINE)
        if not written.source.endswith("fallback"):
            self._shelf.keep(name, written)
        return written

    def _by_model(
        self,
        commission: MetadataRequest,
        plain: PlainPost,
        llm: LanguageModel,
        patience: SecondsLeft,
    ) -> SourcedResult[GeneratedFields]:
        left = min(patience(), MAX_WRITING_SECONDS)
        seconds = left - min(_MAX_SPARE_SECONDS, left * _SPARE_SHARE)
        attended = _Attended(llm, patience)
        try:
            return SourcedResult(_modelled(commission, plain, attended, seconds), llm.name)
        except DomainError as error:
            if self._settings.llm_fallback == "error" or error.kind not in _FAILURES:
                raise
            log.warning("composer.fell_back", code=error.code)
        patience()
        return SourcedResult(_offline(commission, plain), f"{OFFLINE}; fallback")


class _Attended:
    """A language model that is asked only while somebody waits for the answer."""

    def __init__(self, llm: LanguageModel, patience: SecondsLeft) -> None:
        self.name = llm.name
        self.context_tokens = llm.context_tokens
        self._llm = llm
        self._patience = patience

    def ask(self, question: CompletionRequest) -> CompletionReply:
        self._patience()
        return self._llm.ask(replace(question, before_sending=self._patience))


def _modelled(
    commission: MetadataRequest, plain: PlainPost, llm: LanguageModel, seconds: float
) -> GeneratedFields:
    if commission.wanted:
        return _metadata(model.metadata(plain, commission.wanted, llm, seconds))
    return _tweets(model.tweets(plain, llm, seconds))


def _offline(commission: MetadataRequest, plain: PlainPost) -> GeneratedFields:
    if commission.wanted:
        return _metadata(offline.metadata(plain, commission.wanted, plain.content_hash))
    return _tweets(offline.tweets(plain))


def _metadata(written: PostMetadata) -> GeneratedFields:
    fields = {
        "slug": written.slug,
        "summary": written.summary,
        "tags": None if written.tags is None else ",".join(written.tags),
    }
    return {name: text for name, text in fields.items() if text is not None}


def _tweets(written: tuple[str, ...]) -> GeneratedFields:
    return {"tweets": "\n\n".join(written)}
