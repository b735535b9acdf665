"""Uses a language model or the offline writer to write metadata and tweets about a post.

If the language model fails, the offline writer takes over, unless the settings disable this
fallback. The result of the fallback is not cached, because the language model may work again at the
next call.
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
from services.composer.text_processes import TextProcesses
from storage.redis.request_work import RequestLease
from storage.resources import Resources

log = get_logger(__name__)

# The maximum time to reserve for the offline writer after a timeout of the language model.
_MAX_FALLBACK_SECONDS = 5.0
_FALLBACK_SHARE = 0.25
_MAX_LOADING_SECONDS = 200.0
_SAMPLE = MetadataRequest(
    Post("A sample", "A sentence that is long enough for its language to be told."),
    frozenset(MetadataField),
)
# The kinds of errors that a failing language model causes. An error whose kind isn't in
# ``_MODEL_FAILURES`` is a bug in Pressroom.
_MODEL_FAILURES = frozenset({Kind.PROVIDER_FAILED, Kind.UNAVAILABLE, Kind.TOO_SLOW})


@dataclass(frozen=True)
class MetadataWriter:
    """``llm`` is ``None`` if the settings select the offline writer."""

    settings: Settings
    cache: requests.MetadataCache
    texts: TextProcesses
    llm: LanguageModel | None

    @classmethod
    def of_process(cls, resources: Resources) -> "MetadataWriter":
        llm = language_model(
            resources.settings, partial(call_charges.record_usage, resources.redis)
        )
        cache = requests.MetadataCache(resources.settings, resources.keyring, resources.cache)
        return cls(resources.settings, cache, TextProcesses(), llm)

    def load(self) -> None:
        """Load the offline writer's models in advance if it is the fallback.

        Loading takes a few seconds. After a timeout of the language model, the request has too
        little time left for it.
        """
        if self.llm is not None and self.settings.llm_fallback == OFFLINE:
            self.texts.write(_SAMPLE, lambda: _MAX_LOADING_SECONDS)

    def write(
        self,
        request: MetadataRequest,
        seconds_left: requests.SecondsLeft,
        payment: RunPayment | None = None,
    ) -> MetadataResult:
        """``payment`` pays for the language model, and is ``None`` if the call is free."""
        # Check the cache again, because another worker may have cached the result in the meantime.
        # Compute the cache key again, because the API and the worker may have different settings or
        # rules.
        key, result = self.cache.look_up(request)
        if result is not None:
            return result
        if self.llm is None:
            result = MetadataResult(self.texts.write(request, seconds_left), OFFLINE)
        else:
            plain = self.texts.read(request.post, seconds_left)
            attended_model = _AttendedModel(self.llm, seconds_left, payment)
            try:
                total_seconds = min(seconds_left(), request.max_seconds)
                seconds = total_seconds - min(
                    _MAX_FALLBACK_SECONDS, total_seconds * _FALLBACK_SHARE
                )
                if request.fields:
                    metadata = model_writer.write_metadata(
                        plain, request.fields, attended_model, seconds
                    )
                    fields = metadata.to_fields()
                else:
                    fields = join_tweets(model_writer.write_tweets(plain, attended_model, seconds))
            except DomainError as error:
                if payment is not None:
                    payment.is_due = False
                if self.settings.llm_fallback == "error" or error.kind not in _MODEL_FAILURES:
                    raise
                log.warning("composer.fell_back", code=error.code)
                fields = self.texts.write(request, seconds_left)
                return MetadataResult(fields, f"{OFFLINE}; fallback")
            finally:
                if payment is not None:
                    payment.settle()
            result = MetadataResult(fields, self.llm.name)
        self.cache.store(key, result)
        return result


class _AttendedModel:
    """Calls a language model only while a caller waits for the response and pays for the call."""

    def __init__(
        self, llm: LanguageModel, seconds_left: requests.SecondsLeft, payment: RunPayment | None
    ) -> None:
        self.name = llm.name
        self.context_tokens = llm.context_tokens
        self._llm = llm
        self._seconds_left = seconds_left
        self._payment = payment

    def ask(self, request: CompletionRequest) -> CompletionReply:
        self._seconds_left()
        if self._payment is not None:
            self._payment.take_charge()
        reply = self._llm.ask(replace(request, before_sending=self._seconds_left))
        if self._payment is not None:
            self._payment.is_due = True
        return reply


def answer_request(resources: Resources, lease: RequestLease) -> dict[str, Any]:
    request = MetadataRequest.from_payload(lease.payload)
    is_charged = lease.payload.get(IS_CHARGED)
    payment = None
    if is_charged is not None:
        payment = RunPayment(resources.database, lease.request_id, lease.worker, is_charged)
    writer = resources.shared(MetadataWriter.of_process)
    return writer.write(request, lease.seconds_left, payment).to_payload()
