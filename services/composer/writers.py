"""Chooses the writer of a post's metadata: the language model of the settings, or the offline one.

When a model fails, the offline writer takes its place, unless the settings say that the caller is
told. Such a fallback isn't cached, since the model may be back at the next call.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from core.errors import DomainError, Kind
from core.logging import get_logger
from core.settings import Settings
from integrations.llm.port import CompletionReply, CompletionRequest, LanguageModel
from integrations.llm.registry import language_model
from services.composer import call_charges, model_writer, requests
from services.composer.call_charges import IS_CHARGED, RunPayment
from services.composer.requests import OFFLINE, MetadataRequest, MetadataResult
from services.composer.text.post import MetadataField, Post, join_tweets
from services.composer.text_processes import MAX_POST_SECONDS, TextProcesses
from storage.redis.request_work import RequestLease
from storage.resources import Resources

log = get_logger(__name__)

# A model that takes too long leaves this for the offline writer, and for telling its result.
_MAX_SPARE_SECONDS = 5.0
_SPARE_SHARE = 0.25

_SAMPLE = MetadataRequest(
    Post("A sample", "A sentence that is long enough for its language to be told."),
    frozenset(MetadataField),
)

# The kinds of a model's failure; any other is a fault of ours.
_FAILURES = frozenset({Kind.PROVIDER_FAILED, Kind.UNAVAILABLE, Kind.TOO_SLOW})


@dataclass(frozen=True)
class MetadataWriter:
    """``llm`` is None where the offline writer is the settings' choice."""

    settings: Settings
    cache: requests.MetadataCache
    texts: TextProcesses
    llm: LanguageModel | None

    @classmethod
    def of_process(cls, resources: Resources) -> "MetadataWriter":
        llm = language_model(resources.settings, partial(call_charges.note_usage, resources.redis))
        cache = requests.MetadataCache(resources.settings, resources.keyring, resources.cache)
        return cls(resources.settings, cache, TextProcesses(), llm)

    def load(self) -> None:
        """Preload the models of the offline writer if it is the fallback for a language model.

        Loading takes one second, or several on a busy machine. After a language model has timed
        out, the caller can't wait so long. Without a language model, nothing is loaded in advance,
        because the first call has enough time to load the models.
        """
        if self.llm is not None and self.settings.llm_fallback == OFFLINE:
            self.texts.write(_SAMPLE, lambda: MAX_POST_SECONDS)

    def write(
        self,
        request: MetadataRequest,
        seconds_left: requests.SecondsLeft,
        payment: RunPayment | None = None,
    ) -> MetadataResult:
        """Generate the result with the writer that the settings select.

        Raises the same errors as ``TextProcesses.read``. If the settings disable the fallback, also
        raises the errors of the language model.

        Args:
            payment: the charge for the model's responses, or ``None`` if they are free.
        """
        # The API has looked too, but an equal request may have ended since: its model call was
        # paid for. The key is computed anew, since the API may have other settings or rules.
        key, result = self.cache.look_up(request)
        if result is not None:
            return result
        if self.llm is None:
            result = MetadataResult(self.texts.write(request, seconds_left), OFFLINE)
        else:
            plain = self.texts.read(request.post, seconds_left)
            attended = _AttendedModel(self.llm, seconds_left, payment)
            try:
                left = min(seconds_left(), request.max_seconds)
                seconds = left - min(_MAX_SPARE_SECONDS, left * _SPARE_SHARE)
                if request.wanted:
                    written = model_writer.write_metadata(plain, request.wanted, attended, seconds)
                    fields = written.to_fields()
                else:
                    fields = join_tweets(model_writer.write_tweets(plain, attended, seconds))
            except DomainError as error:
                if payment is not None:
                    payment.is_due = False
                if self.settings.llm_fallback == "error" or error.kind not in _FAILURES:
                    raise
                log.warning("composer.fell_back", code=error.code)
                fields = self.texts.write(request, seconds_left)
                return MetadataResult(fields, f"{OFFLINE}; fallback")
            finally:
                if payment is not None:
                    payment.end()
            result = MetadataResult(fields, self.llm.name)
        self.cache.keep(key, result)
        return result


class _AttendedModel:
    """A language model that is asked only while a caller waits for the answer, and pays for it."""

    def __init__(
        self, llm: LanguageModel, seconds_left: requests.SecondsLeft, payment: RunPayment | None
    ) -> None:
        self.name = llm.name
        self.context_tokens = llm.context_tokens
        self._llm = llm
        self._seconds_left = seconds_left
        self._payment = payment

    def ask(self, question: CompletionRequest) -> CompletionReply:
        self._seconds_left()
        if self._payment is not None:
            self._payment.take()
        reply = self._llm.ask(replace(question, before_sending=self._seconds_left))
        if self._payment is not None:
            self._payment.is_due = True
        return reply


def answer(resources: Resources, lease: RequestLease) -> dict[str, Any]:
    request = MetadataRequest.from_payload(lease.payload)
    is_owed = lease.payload.get(IS_CHARGED)
    payment = None
    if is_owed is not None:
        payment = RunPayment(resources.database, lease.request_id, lease.worker, is_owed)
    writer = resources.shared(MetadataWriter.of_process)
    return writer.write(request, lease.seconds_left, payment).to_payload()
