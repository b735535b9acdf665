"""Calls to a worker for request-only work: the call waits for the worker's result, and the work
ends when its last caller has left.

Callers that ask for the same work at the same time, in whichever process, share one run of it.
"""

from typing import Any

import orjson
from redis.exceptions import RedisError

from api.waiting.waiters import Waiters, result_within
from core.errors import DomainError, Kind
from core.lanes import Lane
from core.refusals.requests import QUEUE_UNAVAILABLE, REQUEST_TOO_SLOW
from storage.redis.notifications import result_topic
from storage.redis.request_calls import RequestCalls


class WorkerCalls:
    def __init__(self, calls: RequestCalls) -> None:
        self._calls = calls
        self.results: Waiters[str | bytes] = Waiters(calls.results)

    async def call(
        self,
        task: str,
        lane: Lane,
        payload: dict[str, Any],
        *,
        seconds: float,
        owner_id: int | None = None,
        same: str | None = None,
    ) -> dict[str, Any]:
        """The task's result.

        Calls with the same ``same`` at the same time share one run of the task: name in it
        everything that decides the result. Raises ``request.too_slow`` when there is no result in
        time, ``queue.unavailable`` when the broker takes no message, ``queue.overloaded`` or
        ``queue.too_many_of_yours`` when it would have to wait too long, and what the task raised.
        """
        caller = self._calls.new_caller()
        request_id = same or caller
        result = None
        if seconds > 0:
            # Listen before anything is sent, so that no result comes too early to be heard.
            with self.results.registered(result_topic(request_id)) as future:
                try:
                    await self._calls.join(
                        request_id,
                        caller,
                        payload,
                        task=task,
                        lane=lane,
                        seconds=seconds,
                        owner_id=owner_id,
                    )
                    result = await result_within(future, seconds)
                except RedisError:
                    raise QUEUE_UNAVAILABLE() from None
                finally:
                    # Also when joining failed or was cancelled half-way. It goes on behind the
                    # answer.
                    self._calls.leave(request_id, caller)
        if result is None:
            raise REQUEST_TOO_SLOW(seconds=seconds)
        return _result_told(result)

    def hear(self, topic: str, value: str) -> None:
        """Take the result that a notification brings, or look for it when the value is empty."""
        if value:
            self.results.fulfil(topic, value)
        else:
            self.results.nudge(topic)


def _result_told(answer: str | bytes) -> dict[str, Any]:
    """The result in a worker's answer; raises the error that it has instead."""
    told: dict[str, dict[str, Any]] = orjson.loads(answer)
    if "error" in told:
        error = told["error"]
        raise DomainError(**{**error, "kind": Kind(error["kind"])})
    return told["result"]
