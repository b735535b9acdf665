"""Language models on any server of OpenAI's chat completions protocol."""

import asyncio
import random
import time
from dataclasses import dataclass, field

from core.logging import get_logger
from integrations.llm import completion, wire
from integrations.llm.circuit import Circuit, CircuitOpen, Health
from integrations.llm.failure import CallOutcome, Failure, RequestRejected
from integrations.llm.port import CompletionReply, CompletionRequest, Report, Usage
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


@dataclass(eq=False)
class OpenAIProtocol:
    target: wire.Target
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
        circuit, health = self.server.circuit, Health.UNKNOWN
        try:
            is_probe = circuit.enter()
        except CircuitOpen as opened:
            raise Failure(
                "circuit open", CallOutcome.UNAVAILABLE, health, retry_after=opened.seconds
            ) from None
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
        form: RequestFormat = self.server.formats.get(self.model, RequestFormat())
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
                self.server.formats[self.model] = form
                return completion.read(body).reply(self.model)

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
        return await wire.send(self.target, body, max(deadline - time.monotonic(), 0.1))
