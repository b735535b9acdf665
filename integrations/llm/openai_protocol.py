"""Language models on any server of OpenAI's chat completions protocol."""

import asyncio
import math
import random
import re
import time
from dataclasses import dataclass, field, replace
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
from core.telemetry import spans
from integrations import http_client
from integrations.llm.port import CompletionReply, CompletionRequest, Report, Usage

_log = get_logger(__name__)

_SERVER = "language model"
_RETRY_AFTER_SECONDS = 30


class CallOutcome(StrEnum):
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    TOO_SLOW = "too_slow"


@dataclass(eq=False)
class Failure(Exception):
    """The failure of one request.

    Attributes:
        may_pass: the server asks to come back; ``retry_after`` is when, if it says so.
    """

    reason: str
    outcome: CallOutcome = CallOutcome.FAILED
    may_pass: bool = False
    tokens: tuple[int, int] = (0, 0)
    retry_after: float | None = None

    def told(self) -> DomainError:
        if self.outcome is CallOutcome.TOO_SLOW:
            return LLM_TOO_SLOW()
        if self.outcome is CallOutcome.UNAVAILABLE:
            after = _RETRY_AFTER_SECONDS if self.retry_after is None else self.retry_after
            return LLM_UNAVAILABLE(retry_after=max(1, math.ceil(after)))
        return LLM_FAILED()


@dataclass(eq=False)
class RequestRejected(Exception):
    """The server refuses the request as it is; ``text`` is its reason, to be matched only."""

    status: int
    text: str


# Anything but a count of tokens counts as none.
_Count = Annotated[int, BeforeValidator(lambda n: n if type(n) is int and n >= 0 else 0)]


_TEXT_PARTS = ("text", "output_text")


def _text_of_parts(content: object) -> object:
    """Join the text parts of a response. Other parts, such as ``reasoning``, are dropped."""
    if not isinstance(content, list):
        return content
    parts = [{"text": part} if isinstance(part, str) else part for part in content]
    answers = [
        part.get("text")
        for part in parts
        if isinstance(part, dict)
        and part.get("type", "text") in _TEXT_PARTS
        and not part.get("thought")
    ]
    return "".join(text for text in answers if isinstance(text, str))


class _Message(BaseModel):
    content: Annotated[str | None, BeforeValidator(_text_of_parts)] = None
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
        """Raises ``Failure`` for what is no answer, or half of one; it costs its tokens too."""
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
        raise Failure(reason, tokens=tokens)


def read(body: bytes) -> Completion:
    """Raises ``Failure`` for what isn't of the protocol."""
    try:
        return Completion.model_validate_json(body)
    except ValidationError:
        raise Failure("not a completion") from None


# A request uses the strictest format that its server accepts: a JSON schema, then JSON mode, then a
# plain prompt. Servers also differ in the name of the limit for an answer. This is the newer name.
_NEWER_LIMIT = "max_completion_tokens"
# Models that insist on the newer one may think before they answer, within the same bound.
_THINKING_TOKENS = 4000
# Words of several servers for a material that is too long: no other format changes that.
_TOO_MUCH = re.compile("context[_ ]length|context window|context size|too many tokens")


class ResponseFormat(IntEnum):
    SCHEMA = 0
    OBJECT = 1
    PROMPT = 2


@dataclass(frozen=True)
class RequestFormat:
    form: ResponseFormat = ResponseFormat.SCHEMA
    limit: str = "max_tokens"

    def after(self, error: RequestRejected) -> "RequestFormat | None":
        """The next format to try; None when none is left."""
        if _NEWER_LIMIT in error.text and self.limit != _NEWER_LIMIT:
            return replace(self, limit=_NEWER_LIMIT)
        if self.form is ResponseFormat.PROMPT or _TOO_MUCH.search(error.text):
            return None
        return replace(self, form=ResponseFormat(self.form + 1))

    def body(self, question: CompletionRequest, model: str) -> dict[str, Any]:
        thinking = _THINKING_TOKENS if self.limit == _NEWER_LIMIT else 0
        instructions = question.instructions
        if self.form is not ResponseFormat.SCHEMA:
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
            self.limit: question.max_tokens + thinking,
        }
        if self.form is ResponseFormat.SCHEMA:
            shape = {"name": question.schema_name, "strict": True, "schema": question.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": shape}
        elif self.form is ResponseFormat.OBJECT:
            body["response_format"] = {"type": "json_object"}
        return body


_MAX_CONNECT_SECONDS = 5.0
_MAX_REPLY_BYTES = 1024 * 1024
_MAX_REASON_CHARACTERS = 2000

_NOT_TAKEN = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
_OVERLOADED = 529
_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, _OVERLOADED})


@dataclass(frozen=True)
class Target:
    base_url: str
    api_key: SecretStr | None


async def send(target: Target, body: dict[str, Any], seconds: float) -> bytes:
    """The body of a reply with status 200.

    Raises ``Failure``, or ``RequestRejected`` when it is the request that the server finds wrong.
    """
    bounds = http_client.HttpBounds(seconds, _MAX_CONNECT_SECONDS, _MAX_REPLY_BYTES)
    key = target.api_key
    headers = {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}
    url = f"{target.base_url.rstrip('/')}/chat/completions"
    try:
        with http_client.call_span("POST", url):
            spans.add_attributes({"gen_ai.request.model": body["model"]})
            async with http_client.open_client(bounds) as client:
                reply = await client.post(url, json=body, headers=headers)
            if reply.status_code != HTTPStatus.OK:
                raise _verdict(reply)
            return reply.content
    except http_client.HttpTimeout:
        raise Failure("timeout", CallOutcome.TOO_SLOW) from None
    except (http_client.HttpFailure, httpx2.InvalidURL, httpx2.StreamError) as error:
        raise _unconnected(error) from None


def _verdict(reply: httpx2.Response) -> Failure | RequestRejected:
    status = reply.status_code
    if status in _NOT_TAKEN:
        return RequestRejected(status, reply.text[:_MAX_REASON_CHARACTERS].lower())
    return Failure(
        f"status {status}",
        CallOutcome.UNAVAILABLE if status in _BUSY else CallOutcome.FAILED,
        may_pass=status in _BUSY or status >= HTTPStatus.INTERNAL_SERVER_ERROR,
        retry_after=http_client.retry_after(reply.headers.get("Retry-After")),
    )


def _unconnected(cause: Exception) -> Failure:
    if isinstance(cause, http_client.ReplyRefused):
        return Failure(str(cause))
    if isinstance(cause, httpx2.ConnectError):
        return Failure("no connection", CallOutcome.UNAVAILABLE)
    return Failure(f"broken reply ({type(cause).__name__})")


# The pause before the second try where the server names none, and what that try needs at least.
_PAUSE_SECONDS = 0.5
_MIN_RETRY_SECONDS = 1.0


# A server that fails more often than this in a row is left alone for so long.
_TOLERATED_FAILURES = 4
_REST_SECONDS = 30.0


def breaker(tolerated: int = _TOLERATED_FAILURES) -> Breaker:
    return Breaker(
        _SERVER,
        Failure,
        # Its error of a request, or callers who left, say nothing about it.
        errors_answer=False,
        tolerated=tolerated,
        min_rest_seconds=_REST_SECONDS,
        max_rest_seconds=_REST_SECONDS,
    )


@dataclass
class LlmServerState:
    """The facts that calls of this process have learnt about the server at one base URL."""

    breaker: Breaker = field(default_factory=breaker)
    formats: dict[str, RequestFormat] = field(default_factory=dict)


@dataclass(eq=False)
class OpenAIProtocol:
    target: Target
    server: LlmServerState
    model: str
    context_tokens: int
    report: Report

    @property
    def name(self) -> str:
        return f"openai/{self.model}"

    def ask(self, question: CompletionRequest) -> CompletionReply:
        began = time.monotonic()
        log = _log.bind(model=self.model)
        try:
            reply = self._guarded(question)
        except Failure as failure:
            seconds = time.monotonic() - began
            self.report(Usage(self.model, failure.outcome, *failure.tokens, seconds))
            log.warning(
                "language model failed",
                outcome=failure.outcome,
                reason=failure.reason,
                seconds=round(seconds, 3),
            )
            raise failure.told() from None
        seconds = time.monotonic() - began
        tokens = {"tokens_in": reply.tokens_in, "tokens_out": reply.tokens_out}
        self.report(Usage(self.model, "answered", **tokens, seconds=seconds))
        log.info("language model answered", **tokens, seconds=round(seconds, 3))
        return reply

    def _guarded(self, question: CompletionRequest) -> CompletionReply:
        breaker = self.server.breaker
        try:
            # Each call has a loop of its own: cancelling is what bounds a reply that trickles.
            with breaker.protect():
                completion = asyncio.run(self._negotiated(question))
        except ServerFailed:
            raise Failure(
                "circuit open", CallOutcome.UNAVAILABLE, retry_after=breaker.retry_after_seconds
            ) from None
        except RequestRejected as error:
            raise Failure(f"status {error.status}") from None
        # Not guarded: a model that does not want to answer is no server that fails.
        return completion.reply(self.model)

    async def _negotiated(self, question: CompletionRequest) -> Completion:
        """Ask in the format that the server accepted last, then in looser ones.

        Raises ``Failure``, and ``RequestRejected`` when the server accepts none of them.
        """
        deadline = time.monotonic() + question.seconds
        form: RequestFormat = self.server.formats.get(self.model, RequestFormat())
        while True:
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    body = await self._tried_twice(question, form, deadline)
            except TimeoutError:
                raise Failure("timeout", CallOutcome.TOO_SLOW) from None
            except RequestRejected as error:
                following = form.after(error)
                if following is None:
                    raise
                form = following
            else:
                self.server.formats[self.model] = form
                return read(body)

    async def _tried_twice(
        self, question: CompletionRequest, form: RequestFormat, deadline: float
    ) -> bytes:
        try:
            return await self._sent(question, form, deadline)
        except Failure as failure:
            pause = failure.retry_after
            if pause is None:
                pause = _PAUSE_SECONDS * random.uniform(1.0, 1.5)  # noqa: S311 - it only spreads calls
            if not failure.may_pass or pause + _MIN_RETRY_SECONDS > deadline - time.monotonic():
                raise
            _log.info("language model asked again", model=self.model, reason=failure.reason)
        await asyncio.sleep(pause)
        return await self._sent(question, form, deadline)

    async def _sent(
        self, question: CompletionRequest, form: RequestFormat, deadline: float
    ) -> bytes:
        body = form.body(question, self.model)
        question.before_sending()
        return await send(self.target, body, max(deadline - time.monotonic(), 0.1))
