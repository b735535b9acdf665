"""Language models on any server of OpenAI's chat completions protocol."""

import asyncio
import random
import time
from dataclasses import dataclass, field

from core.logging import get_logger
from integrations.llm import completion, wire
from integrations.llm.circuit import Circuit, CircuitOpen, Health
from integrations.llm.failure import CallOutcome, Failure, RequestRejected
from integrations.llm.port import CompletionReply, CompletionRequest, Report, Usage, ignore_usage
from integrations.llm.request_format import RequestFormat

# The pause before the second try where the server names none, and what that try needs at least.
_PAUSE_SECONDS = 0.5
_MIN_RETRY_SECONDS = 1.0

_log = get_logger(__name__)


@dataclass
class LlmServerState:
    """What calls of this process have learnt about the server at one base URL."""

    circuit: Circuit = field(default_factory=Circuit)
    formats: dict[str, RequestFormat] = field(default_factory=dict)


class OpenAIProtocol:
    def __init__(
        self,
        target: wire.Target,
        server: LlmServerState,
        *,
        model: str,
        context_tokens: int,
        report: Report = ignore_usage,
    ) -> None:
        self.name = f"openai/{model}"
        self.context_tokens = context_tokens
        self._target = target
        self._server = server
        self._model = model
        self._report = report

    def ask(self, question: CompletionRequest) -> CompletionReply:
        began = time.monotonic()
        try:
            reply = self._guarded(question)
        except Failure as failure:
            seconds = time.monotonic() - began
            self._report(Usage(self._model, failure.outcome, *failure.tokens, seconds))
            _log.warning(
                "language model failed",
                model=self._model,
                outcome=failure.outcome,
                reason=failure.reason,
                seconds=round(seconds, 3),
            )
            raise failure.told() from None
        seconds = time.monotonic() - began
        self._report(Usage(self._model, "answered", reply.tokens_in, reply.tokens_out, seconds))
        _log.info(
            "language model answered",
            model=self._model,
            tokens_in=reply.tokens_in,
            tokens_out=reply.tokens_out,
            seconds=round(seconds, 3),
        )
        return reply

    def _guarded(self, question: CompletionRequest) -> CompletionReply:
        circuit = self._server.circuit
        try:
            is_probe = circuit.enter()
        except CircuitOpen as opened:
            raise Failure(
                "circuit open", CallOutcome.UNAVAILABLE, Health.UNKNOWN, retry_after=opened.seconds
            ) from None
        health = Health.UNKNOWN
        try:
            # Each call has a loop of its own: cancelling is what bounds a reply that trickles.
            reply = asyncio.run(self._negotiated(question))
            health = Health.WORKS
        except Failure as failure:
            health = failure.health
            raise
        finally:
            circuit.leave(health, is_probe=is_probe)
        return reply

    async def _negotiated(self, question: CompletionRequest) -> CompletionReply:
        """Ask in the format that the server accepted last, then in looser ones."""
        deadline = time.monotonic() + question.seconds
        form: RequestFormat = self._server.formats.get(self._model, RequestFormat())
        while True:
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    body = await self._tried_twice(question, form, deadline)
            except TimeoutError:
                raise Failure("timeout", CallOutcome.TOO_SLOW) from None
            except RequestRejected as refusal:
                following = form.after(refusal)
                if following is None:
                    raise Failure(f"status {refusal.status}", health=Health.UNKNOWN) from None
                form = following
            else:
                self._server.formats[self._model] = form
                return completion.read(body).reply(self._model)

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
            _log.info("language model asked again", model=self._model, reason=failure.reason)
        await asyncio.sleep(pause)
        return await self._sent(question, form, deadline)

    async def _sent(
        self, question: CompletionRequest, form: RequestFormat, deadline: float
    ) -> bytes:
        body = form.body(question, self._model)
        question.before_sending()
        return await wire.send(self._target, body, max(deadline - time.monotonic(), 0.1))
