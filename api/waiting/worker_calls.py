"""Calls to a worker for request-only work: the call waits for the worker's result, and the work
ends when its last caller has left.

Callers that ask for the same work at the same time, in whichever process, share one run of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import orjson
from redis.exceptions import RedisError

from api.waiting.waiters import Waiters
from core.errors import DomainError, Kind, requests
from core.logging import get_logger
from core.queues import RequestKind
from storage.redis import request_scripts
from storage.redis.notifications import result_topic
from storage.redis.request_calls import RequestCalls

log = get_logger(__name__)

# A message that no worker took by then may be lost. The pauses double, so that a long queue is not
# made much longer.
RESEND_AFTER_SECONDS = 2.0


class WorkerCalls:
    def __init__(self, calls: RequestCalls) -> None:
        self._calls = calls
        self.results: Waiters[str | bytes] = Waiters(calls.results)

    async def call(
        self,
        kind: RequestKind,
        payload: dict[str, Any],
        *,
        seconds: float,
        owner_id: int | None = None,
        same: str | None = None,
    ) -> dict[str, Any]:
        """The work's result.

        Calls with the same ``same`` at the same time share one run of the work: name in it
        everything that decides the result. Raises ``request.too_slow`` when there is no result in
        time, ``queue.unavailable`` when the broker takes no message, ``queue.overloaded`` or
        ``queue.too_many_of_yours`` when it would have to wait too long, and what the work raised.
        """
        caller = self._calls.new_caller()
        request_id = request_scripts.request_id(kind.queue, same or caller)
        join = partial(self._calls.join, request_id, caller, payload, kind=kind, owner_id=owner_id)
        result = None
        if seconds > 0:
            # Listen before anything is sent, so that no result comes too early to be heard.
            with self.results.registered(result_topic(request_id)) as future:
                try:
                    await join(seconds=seconds)
                    result = await _persist(future, join, seconds)
                except RedisError:
                    raise requests.QUEUE_UNAVAILABLE() from None
                finally:
                    # Also when joining failed or was cancelled half-way. It goes on behind the
                    # answer.
                    self._calls.leave(request_id, caller)
        if result is None and self.results.closed:
            raise requests.QUEUE_UNAVAILABLE()
        if result is None:
            raise requests.REQUEST_TOO_SLOW(seconds=seconds)
        told: dict[str, dict[str, Any]] = orjson.loads(result)
        if "error" in told:
            error = told["error"]
            raise DomainError(**{**error, "kind": Kind(error["kind"])})
        return told["result"]

    def deliver(self, topic: str, value: str) -> None:
        """Deliver the result that a notification contains. If it is empty, look the result up."""
        if value:
            self.results.fulfil(topic, value)
        else:
            self.results.nudge(topic)


async def _persist(
    future: asyncio.Future[str | bytes | None], join: Callable[..., Awaitable[None]], seconds: float
) -> str | bytes | None:
    """Return the future's value, or ``None`` when the time runs out; send a lost message again."""
    clock = asyncio.get_running_loop().time
    until, pause = clock() + seconds, RESEND_AFTER_SECONDS
    while (left := until - clock()) > 0:
        await asyncio.wait({future}, timeout=min(left, pause))
        if future.done():
            return future.result()
        if (left := until - clock()) > 0:
            pause *= 2
            try:
                await join(seconds=left, again=True)
            except (RedisError, DomainError) as error:
                # The first message may still be there.
                log.warning("request.not_sent_again", reason=type(error).__name__)
    return None
