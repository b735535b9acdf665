"""An adapter for language models that support OpenAI's chat completions protocol.

A request uses the strictest response format that the model's server accepts. The response formats,
from strict to loose, are a JSON schema, JSON mode and a plain prompt.
"""

import asyncio
import math
import re
import time
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import IntEnum, StrEnum
from http import HTTPStatus
from typing import Annotated, Any

import httpx2
import orjson
from pydantic import BaseModel, BeforeValidator, Field, SecretStr, ValidationError

from core.calls.breaker import Breaker
from core.errors import DomainError, ServerFailed
from core.errors.composer import LLM_FAILED, LLM_TOO_SLOW, LLM_UNAVAILABLE
from core.logging import get_logger
from core.pauses import Pauses
from core.telemetry import spans
from integrations import http_client
from integrations.llm.port import CompletionReply, CompletionRequest, Report, Usage

_log = get_logger(__name__)

_SERVER = "language model"
_DEFAULT_RETRY_AFTER_SECONDS = 30
_MAX_CONNECT_SECONDS = 5.0
_MAX_REPLY_BYTES = 1024 * 1024
_MAX_REASON_CHARACTERS = 2000

# The request parameter that some models require instead of `max_tokens`. A server accepts only one
# of the parameters `max_tokens` and `max_completion_tokens`.
_NEWER_LIMIT = "max_completion_tokens"
# The number of tokens added to `max_completion_tokens`, because this request parameter also limits
# the reasoning tokens.
_REASONING_TOKENS = 4000
# Matches the error messages of various servers about a prompt that is too long. If the prompt is
# too long, the request isn't retried with another response format.
_PROMPT_TOO_LONG = re.compile("context[_ ]length|context window|context size|too many tokens")
_TEXT_PARTS = ("text", "output_text")

_REJECTED_STATUSES = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
_OVERLOADED_STATUS = 529
_BUSY_STATUSES = frozenset(
    {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, _OVERLOADED_STATUS}
)

# The pause before a retry, unless the server requests a different pause.
_RETRY_PAUSES = Pauses((timedelta(seconds=0.5),), jitter=0.5)
# A failed request is retried only if at least this much time is left.
_MIN_RETRY_SECONDS = 1.0

# The circuit breaker opens after the fifth consecutive failure. An open circuit breaker rejects all
# requests to the server for half a minute.
_TOLERATED_FAILURES = 4
_REST_SECONDS = 30.0


class CallOutcome(StrEnum):
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    TOO_SLOW = "too_slow"


@dataclass(eq=False)
class CompletionFailed(Exception):
    """A request to a language model has failed.

    Attributes:
        tokens: the numbers of input tokens and output tokens that the request has used.
        retry_after: the pause in seconds that the server requests before a retry.
    """

    reason: str
    outcome: CallOutcome = CallOutcome.FAILED
    is_temporary: bool = False
    tokens: tuple[int, int] = (0, 0)
    retry_after: float | None = None

    def to_domain_error(self) -> DomainError:
        if self.outcome is CallOutcome.TOO_SLOW:
            return LLM_TOO_SLOW()
        if self.outcome is CallOutcome.UNAVAILABLE:
            after = _DEFAULT_RETRY_AFTER_SECONDS if self.retry_after is None else self.retry_after
            return LLM_UNAVAILABLE(retry_after=max(1, math.ceil(after)))
        return LLM_FAILED()


@dataclass(eq=False)
class RequestRejected(Exception):
    """Raised if the language model server rejects a request, for example for an unknown parameter.

    The server's error message is matched against known errors, but never shown or logged.
    """

    status: int
    text: str


# The token count of a prompt or completion. Invalid token counts become 0.
_Count = Annotated[int, BeforeValidator(lambda n: n if type(n) is int and n >= 0 else 0)]


def _join_text_parts(content: object) -> object:
    """Join the text parts of a response, without other parts such as ``reasoning``."""
    if not isinstance(content, list):
        return content
    parts = [{"text": part} if isinstance(part, str) else part for part in content]
    texts = [
        part.get("text")
        for part in parts
        if isinstance(part, dict)
        and part.get("type", "text") in _TEXT_PARTS
        and not part.get("thought")
    ]
    return "".join(text for text in texts if isinstance(text, str))


class _Message(BaseModel):
    content: Annotated[str | None, BeforeValidator(_join_text_parts)] = None
    error: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0


class Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None

    def reply(self, model: str) -> CompletionReply:
        """Raise ``CompletionFailed`` if the response is empty, incomplete or a refusal.

        The exception contains the number of used tokens, because providers charge for failed
        requests too.
        """
        choice = self.choices[0]
        usage = self.usage or _Usage()
        tokens = usage.prompt_tokens, usage.completion_tokens
        text = choice.message.content or ""
        if choice.message.error:
            reason = "error"
        elif choice.finish_reason == "content_filter":
            reason = "filtered"
        elif choice.finish_reason == "length":
            reason = "longer than allowed"
        elif not text.strip():
            reason = "empty answer"
        else:
            return CompletionReply(text, model, *tokens)
        raise CompletionFailed(reason, tokens=tokens)


def parse_completion(body: bytes) -> Completion:
    try:
        return Completion.model_validate_json(body)
    except ValidationError:
        raise CompletionFailed("not a completion") from None


class ResponseFormat(IntEnum):
    SCHEMA = 0
    OBJECT = 1
    PROMPT = 2


@dataclass(frozen=True)
class RequestFormat:
    """``limit`` is the request parameter that limits the number of output tokens."""

    response_format: ResponseFormat = ResponseFormat.SCHEMA
    limit: str = "max_tokens"

    def get_next(self, error: RequestRejected) -> "RequestFormat | None":
        """Return the next format to try, or ``None`` if no retry can succeed."""
        if _NEWER_LIMIT in error.text and self.limit != _NEWER_LIMIT:
            return replace(self, limit=_NEWER_LIMIT)
        is_last = self.response_format is ResponseFormat.PROMPT
        if is_last or _PROMPT_TOO_LONG.search(error.text):
            return None
        return replace(self, response_format=ResponseFormat(self.response_format + 1))

    def build_body(self, question: CompletionRequest, model: str) -> dict[str, Any]:
        reasoning_tokens = _REASONING_TOKENS if self.limit == _NEWER_LIMIT else 0
        instructions = question.instructions
        if self.response_format is not ResponseFormat.SCHEMA:
            instructions += (
                "\n\nAnswer with one JSON object and nothing else. It is an instance of this JSON "
                f"schema:\n{orjson.dumps(question.schema).decode()}"
            )
        body: dict[str, Any] = {
            "model": model,
            "messages": [
                {"role": "system", "content": instructions},
                {"role": "user", "content": question.material},
            ],
            self.limit: question.max_tokens + reasoning_tokens,
        }
        if self.response_format is ResponseFormat.SCHEMA:
            schema = {"name": question.schema_name, "strict": True, "schema": question.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif self.response_format is ResponseFormat.OBJECT:
            body["response_format"] = {"type": "json_object"}
        return body


@dataclass(frozen=True)
class Target:
    base_url: str
    api_key: SecretStr | None


async def post_completion(target: Target, body: dict[str, Any], seconds: float) -> bytes:
    """Raise ``RequestRejected`` if the server rejects the request as invalid.

    Raises ``CompletionFailed`` if the server is unreachable, overloaded, too slow or broken.
    """
    bounds = http_client.HttpBounds(seconds, _MAX_CONNECT_SECONDS, _MAX_REPLY_BYTES)
    key = target.api_key
    headers = {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}
    url = f"{target.base_url.rstrip('/')}/chat/completions"
    try:
        with http_client.open_call_span("POST", url):
            spans.add_attributes({"gen_ai.request.model": body["model"]})
            async with http_client.open_async_client(bounds) as client:
                reply = await client.post(url, json=body, headers=headers)
            if reply.status_code != HTTPStatus.OK:
                raise _translate_status(reply)
            return reply.content
    except http_client.HttpTimeout:
        raise CompletionFailed("timeout", CallOutcome.TOO_SLOW) from None
    except (http_client.HttpFailure, httpx2.InvalidURL, httpx2.StreamError) as error:
        raise _translate_failure(error) from None


def _translate_status(reply: httpx2.Response) -> CompletionFailed | RequestRejected:
    status = reply.status_code
    if status in _REJECTED_STATUSES:
        return RequestRejected(status, reply.text[:_MAX_REASON_CHARACTERS].lower())
    is_busy = status in _BUSY_STATUSES
    return CompletionFailed(
        f"status {status}",
        CallOutcome.UNAVAILABLE if is_busy else CallOutcome.FAILED,
        is_temporary=is_busy or status >= HTTPStatus.INTERNAL_SERVER_ERROR,
        retry_after=http_client.parse_retry_after(reply.headers.get("Retry-After")),
    )


def _translate_failure(cause: Exception) -> CompletionFailed:
    if isinstance(cause, http_client.ReplyRefused):
        return CompletionFailed(str(cause))
    if isinstance(cause, httpx2.ConnectError):
        return CompletionFailed("no connection", CallOutcome.UNAVAILABLE)
    return CompletionFailed(f"broken reply ({type(cause).__name__})")


def create_breaker(tolerated: int = _TOLERATED_FAILURES) -> Breaker:
    return Breaker(
        _SERVER,
        CompletionFailed,
        # Rejected requests and disconnected callers don't close the circuit breaker, because they
        # don't show that the server works.
        errors_answer=False,
        tolerated=tolerated,
        min_rest_seconds=_REST_SECONDS,
        max_rest_seconds=_REST_SECONDS,
    )


@dataclass
class LlmServerState:
    """``formats`` maps each model to the last request format that the server accepted."""

    breaker: Breaker = field(default_factory=create_breaker)
    formats: dict[str, RequestFormat] = field(default_factory=dict)


@dataclass(eq=False)
class OpenAIProtocol:
    """A language model on a server with an OpenAI-compatible API.

    ``report`` records the outcome and the token counts of each request.
    """

    target: Target
    server: LlmServerState
    model: str
    context_tokens: int
    report: Report

    @property
    def name(self) -> str:
        return f"openai/{self.model}"

    def ask(self, question: CompletionRequest) -> CompletionReply:
        started_at = time.monotonic()
        log = _log.bind(model=self.model)
        try:
            reply = self._ask_with_breaker(question)
        except CompletionFailed as failure:
            seconds = time.monotonic() - started_at
            self.report(Usage(self.model, failure.outcome, *failure.tokens, seconds))
            log.warning(
                "language model failed",
                outcome=failure.outcome,
                reason=failure.reason,
                seconds=round(seconds, 3),
            )
            raise failure.to_domain_error() from None
        seconds = time.monotonic() - started_at
        tokens = {"tokens_in": reply.tokens_in, "tokens_out": reply.tokens_out}
        self.report(Usage(self.model, "answered", **tokens, seconds=seconds))
        log.info("language model answered", **tokens, seconds=round(seconds, 3))
        return reply

    def _ask_with_breaker(self, question: CompletionRequest) -> CompletionReply:
        breaker = self.server.breaker
        try:
            # Each call runs in a new event loop, because only an event loop can cancel a call whose
            # reply arrives byte by byte.
            with breaker.protect():
                completion = asyncio.run(self._negotiate_format(question))
        except ServerFailed:
            raise CompletionFailed(
                "circuit open", CallOutcome.UNAVAILABLE, retry_after=breaker.retry_after_seconds
            ) from None
        except RequestRejected as error:
            raise CompletionFailed(f"status {error.status}") from None
        # An unusable response doesn't count as a failure for the circuit breaker, because the
        # server has responded.
        return completion.reply(self.model)

    async def _negotiate_format(self, question: CompletionRequest) -> Completion:
        """Send a request in the last accepted format.

        If the server rejects the format, retry with less strict formats. Raises ``RequestRejected``
        if the server rejects all formats.
        """
        deadline = time.monotonic() + question.seconds
        request_format: RequestFormat = self.server.formats.get(self.model, RequestFormat())
        while True:
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    body = await self._send_with_retry(question, request_format, deadline)
            except TimeoutError:
                raise CompletionFailed("timeout", CallOutcome.TOO_SLOW) from None
            except RequestRejected as error:
                next_format = request_format.get_next(error)
                if next_format is None:
                    raise
                request_format = next_format
            else:
                self.server.formats[self.model] = request_format
                return parse_completion(body)

    async def _send_with_retry(
        self, question: CompletionRequest, request_format: RequestFormat, deadline: float
    ) -> bytes:
        try:
            return await self._send(question, request_format, deadline)
        except CompletionFailed as failure:
            pause = failure.retry_after
            if pause is None:
                pause = _RETRY_PAUSES.choose(1).total_seconds()
            seconds_left = deadline - time.monotonic()
            if not failure.is_temporary or pause + _MIN_RETRY_SECONDS > seconds_left:
                raise
            _log.info("language model asked again", model=self.model, reason=failure.reason)
        await asyncio.sleep(pause)
        return await self._send(question, request_format, deadline)

    async def _send(
        self, question: CompletionRequest, request_format: RequestFormat, deadline: float
    ) -> bytes:
        body = request_format.build_body(question, self.model)
        question.before_sending()
        return await post_completion(self.target, body, max(deadline - time.monotonic(), 0.1))
