"""Calls to a worker for request-only work: the call waits for the worker's result, and the work
ends when its last caller has left.

Callers that ask for the same work at the same time, in whichever process, share one run of it.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError

from api.limits.bulkheads import REQUESTS
from api.waiting.waiters import Waiters
from core.errors import DomainError, Kind
from core.lanes import Lane
from core.logging import get_logger
from core.refusals.requests import QUEUE_UNAVAILABLE, REQUEST_TOO_SLOW
from storage.redis.notifications import request_of, result_topic
from storage.redis.request_work import RequestWork, result_key
from storage.resources import Resources

log = get_logger(__name__)

# A message that no worker took by then may be lost. The pauses double, so that a long queue is not
# made much longer.
RESEND_AFTER_SECONDS = 2.0


class WorkerCalls:
    def __init__(self, resources: Resources, client: redis.asyncio.Redis) -> None:
        self._broker = resources.broker
        self._client = client
        self._work = RequestWork(resources.redis)
        self.results: Waiters[str | bytes] = Waiters(self._look)
        self._leaving: set[asyncio.Future[None]] = set()

    async def aclose(self) -> None:
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def call(
        self,
        task: str,
        lane: Lane,
        payload: dict[str, Any],
        *,
        seconds: float,
        same: str | None = None,
    ) -> dict[str, Any]:
        """The task's result.

        Calls with the same ``same`` at the same time share one run of the task: name in it
        everything that decides the result. Raises ``request.too_slow`` when there is no result in
        time, ``queue.unavailable`` when the broker takes no message, and what the task raised.
        """
        caller_id = secrets.token_urlsafe(12)
        request_id = same or caller_id

        def submit(seconds: float = seconds, *, again: bool = False) -> None:
            # Each caller sends a message of its own: the first message that a worker takes starts
            # the run, and no caller depends on another's message. A message has no expiry, which
            # would compare the clocks of two machines: for nobody's message there is no work.
            if self._work.join(
                request_id, caller_id, payload, seconds, again=again
            ) and not self._broker.send(task, lane, {"request_id": request_id}, task_id=caller_id):
                raise QUEUE_UNAVAILABLE()

        result = None
        if seconds > 0:
            # Listen before anything is sent, so that no result comes too early to be heard.
            with self.results.registered(result_topic(request_id)) as future:
                async with self._joined(submit, request_id, caller_id):
                    result = await _persist(future, submit, seconds)
        if result is None and self.results.closed:
            raise QUEUE_UNAVAILABLE()
        if result is None:
            raise REQUEST_TOO_SLOW(seconds=seconds)
        return _opened(result)

    @asynccontextmanager
    async def _joined(
        self, submit: Callable[[], None], request_id: str, caller_id: str
    ) -> AsyncIterator[None]:
        """Be one of the work's callers while the block lasts: the work ends with its last one.

        The caller joins before the block begins. It leaves however the block ends, cancelled too,
        and also when joining failed or was cancelled half-way. Raises ``queue.unavailable``.
        """
        submitting = asyncio.ensure_future(REQUESTS.run(submit))

        async def leave() -> None:
            # The submitting thread can't be cancelled, so wait until it has joined: leaving before
            # that would have no effect.
            await asyncio.wait({submitting})
            try:
                await REQUESTS.run(self._work.leave, request_id, caller_id)
            except (RedisError, DomainError) as error:
                # The caller's entry expires by itself; until then a worker may still do its work.
                log.warning("request.not_left", reason=type(error).__name__)

        try:
            await asyncio.shield(submitting)
            yield
        except RedisError:
            raise QUEUE_UNAVAILABLE() from None
        finally:
            # In a task of its own: the caller gets its answer now and does not wait for this.
            leaving = asyncio.ensure_future(leave())
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    def hear(self, topic: str, value: str) -> None:
        """Take the result that a notification brings, or look for it when the value is empty."""
        if value:
            self.results.fulfil(topic, value)
        else:
            self.results.nudge(topic)

    async def _look(self, topics: list[str]) -> Mapping[str, str | bytes]:
        values = await self._client.mget([result_key(request_of(topic)) for topic in topics])
        found = zip(topics, values, strict=True)
        return {topic: value for topic, value in found if value is not None}


async def _persist(
    future: asyncio.Future[str | bytes | None], submit: Callable[..., None], seconds: float
) -> str | bytes | None:
    """The future's value, or ``None`` when the time runs out; a lost message is sent again."""
    clock = asyncio.get_running_loop().time
    until, pause = clock() + seconds, RESEND_AFTER_SECONDS
    while (left := until - clock()) > 0:
        await asyncio.wait({future}, timeout=min(left, pause))
        if future.done():
            return future.result()
        if (left := until - clock()) > 0:
            pause *= 2
            try:
                await REQUESTS.run(submit, left, again=True)
            except (RedisError, DomainError) as error:
                # The first message may still be there.
                log.warning("request.not_sent_again", reason=type(error).__name__)
    return None


def _opened(result: str | bytes) -> dict[str, Any]:
    """The task's result; raises what the task raised."""
    answer: dict[str, dict[str, Any]] = json.loads(result)
    if "error" in answer:
        error = answer["error"]
        raise DomainError(**{**error, "kind": Kind(error["kind"])})
    return answer["result"]
