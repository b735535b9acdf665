"""The calling side of request-only work, for one process whose calls all wait in one event loop.

Steps that are taken at the same time share one round trip. They are executed in the order in which
they were taken, so a caller's leaving never overtakes its joining.
"""

import asyncio
import math
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import redis.asyncio

from core.counters.store_metrics import observe_redis
from core.errors.requests import QUEUE_OVERLOADED, QUEUE_TOO_MANY_OF_YOURS, QUEUE_UNAVAILABLE
from core.logging import get_logger
from core.queues import RequestKind
from core.telemetry import spans
from core.telemetry.attributes import SpanAttributes
from storage.redis import request_scripts
from storage.redis.notifications import request_of
from storage.task_messages import build_message, queue_name

log = get_logger(__name__)

# This many are always let in: their waiting shows whether the line moves.
MIN_WORKS_IN_LINE = 10
MAX_WORKS_IN_LINE = 1_000
# Other owners find room whatever one owner asks.
MAX_WORKS_IN_LINE_OF_AN_OWNER = 500
# The line stands in memory that all share. Only inputs that are larger than most are counted: small
# ones take no more, and each count looks at the whole line.
MAX_BYTES_IN_LINE_OF_AN_OWNER = 16 * 1024 * 1024
MAX_SMALL_INPUT_BYTES = 32 * 1024
# When the oldest has waited for so long, an answer is hardly worth its wait any more. An owner who
# has nothing in the line did not fill it, and may wait twice as long.
MAX_LINE_SECONDS = 10.0
_MAX_RETRY_AFTER_SECONDS = 30

# The inputs in one round trip, but for the first: a large one must not hold up many small ones.
MAX_ROUND_TRIP_BYTES = 256 * 1024

Argument = str | bytes | int
# Sends a message with the id of a work; returns whether the broker took it.
Send = Callable[[RequestKind, str], Awaitable[bool]]


@dataclass(frozen=True, eq=False)
class _Step:
    script: str
    keys: list[str]
    arguments: list[Argument]
    done: asyncio.Future[Any]
    size: int = 0


class RequestCalls:
    """``send`` is for a broker that is elsewhere than the client's Redis. Without it the step that
    adds a caller puts the message on the queue, and no other comes between."""

    def __init__(
        self, client: redis.asyncio.Redis, waiter: str | None, send: Send | None = None
    ) -> None:
        self._client = client
        self._send = send
        self._waiter = waiter or ""
        self._steps: deque[_Step] = deque()
        self._wake = asyncio.Event()

    def new_caller(self) -> str:
        """An id that says which process waits."""
        return f"{self._waiter}.{secrets.token_urlsafe(12)}"

    async def join(
        self,
        request_id: str,
        caller: str,
        payload: dict[str, Any],
        *,
        kind: RequestKind,
        seconds: float,
        owner_id: int | None = None,
        again: bool = False,
    ) -> None:
        """Add a caller that waits for so many seconds, and send a message if no worker has begun.

        Each caller sends a message of its own: the first message that a worker takes starts the
        run, and no caller depends on another's message.

        ``again``: for a caller who waits already. The parts of the work that Redis lost are there
        again then, and a lost message is sent again.

        Raises ``queue.overloaded`` and, for the owner who asks for too much,
        ``queue.too_many_of_yours``, for a call without an owner only the former;
        ``queue.unavailable`` when a broker elsewhere takes no message; and ``RedisError``.
        """
        # The trace is for the worker. Equal requests go on in the trace of one of them.
        trace = spans.current_traceparent()
        told = payload if trace is None else {**payload, request_scripts.TRACEPARENT: trace}
        text = orjson.dumps(told)
        word = b""
        if self._send is None:
            word = build_message(kind.task, kind.queue, {"request_id": request_id}, task_id=caller)
        owner = "" if owner_id is None else str(owner_id)
        works = (MIN_WORKS_IN_LINE, MAX_WORKS_IN_LINE, MAX_WORKS_IN_LINE_OF_AN_OWNER)
        keys = [*request_scripts.keys(request_id), queue_name(kind.queue)]
        arguments: list[Argument] = [caller, request_scripts.milliseconds(seconds), text, word]
        arguments += [owner, *works, request_scripts.milliseconds(MAX_LINE_SECONDS), int(again)]
        arguments += [MAX_SMALL_INPUT_BYTES, MAX_BYTES_IN_LINE_OF_AN_OWNER]
        about: SpanAttributes = {"messaging.destination.name": queue_name(kind.queue)}
        with spans.step_span(f"send {kind.task}", "producer", about):
            found = await self._take(request_scripts.JOIN, keys, arguments, size=len(text))
        if isinstance(found, list):
            reason, oldest_age = found
            # The line moves on by itself in about the time that its oldest work has waited.
            again_in = min(max(math.ceil(oldest_age / 1000), 1), _MAX_RETRY_AFTER_SECONDS)
            error = QUEUE_OVERLOADED if reason == b"overloaded" else QUEUE_TOO_MANY_OF_YOURS
            raise error(retry_after=again_in)
        if found is not None and self._send and not await self._send(kind, request_id):
            raise QUEUE_UNAVAILABLE()

    def leave(self, request_id: str, caller: str) -> None:
        """Take a caller off. The last one takes the work along, unless a worker runs it."""
        keys = request_scripts.keys(request_id)
        self._take(request_scripts.LEAVE, keys, [caller]).add_done_callback(_note_failure)

    async def results(self, topics: list[str]) -> Mapping[str, bytes | str]:
        """The results that are there, by the topics of their notifications."""
        names = [request_scripts.result_key(request_of(topic)) for topic in topics]
        values = await self._client.mget(names)
        found = zip(topics, values, strict=True)
        return {topic: value for topic, value in found if value is not None}

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.flush()

    async def flush(self) -> None:
        """Execute what has been taken so far."""
        while self._steps:
            steps = [self._steps.popleft()]
            size = steps[0].size
            # Optimization: several Redis scripts per round trip (decision 17).
            while self._steps and size + self._steps[0].size <= MAX_ROUND_TRIP_BYTES:
                steps.append(self._steps.popleft())
                size += steps[-1].size
            answers = await self._answers(steps)
            for step, answer in zip(steps, answers, strict=True):
                if step.done.done():  # its caller was cancelled
                    continue
                if isinstance(answer, Exception):
                    step.done.set_exception(answer)
                else:
                    step.done.set_result(answer)

    def _take(
        self, script: str, keys: list[str], arguments: list[Argument], size: int = 0
    ) -> asyncio.Future[Any]:
        done = asyncio.get_running_loop().create_future()
        self._steps.append(_Step(script, keys, arguments, done, size))
        self._wake.set()
        return done

    async def _answers(self, steps: list[_Step]) -> list[Any]:
        try:
            async with self._client.pipeline(transaction=False) as pipeline:
                for step in steps:
                    pipeline.eval(step.script, len(step.keys), *step.keys, *step.arguments)
                with observe_redis(redis.RedisError):
                    return await pipeline.execute(raise_on_error=False)
        except Exception as error:  # noqa: BLE001 - every step must learn that it failed
            return [error] * len(steps)


def _note_failure(left: asyncio.Future[Any]) -> None:
    if not left.cancelled() and (error := left.exception()):
        # The caller's entry expires by itself; until then a worker may still do its work.
        log.warning("request.not_left", reason=type(error).__name__)
