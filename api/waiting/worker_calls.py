"""Asking a worker and waiting for its answer, for work that nobody does once its callers are gone.

Callers who ask the same question at the same time, in whichever process, share one answer.
"""

import asyncio
import json
import secrets
from collections.abc import Mapping
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError
from starlette.concurrency import run_in_threadpool

from api.waiting.waiters import Waiters, result_within
from core.errors import DomainError, Kind
from core.lanes import Lane
from core.logging import get_logger
from core.refusals.requests import QUEUE_UNAVAILABLE, REQUEST_TOO_SLOW
from storage.redis.notifications import request_of, result_topic
from storage.redis.request_work import RequestWork, result_key
from storage.resources import Resources

log = get_logger(__name__)


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

        Calls with the same ``same`` at the same time are one: name in it whatever decides the
        answer. Raises ``request.too_slow`` when there is none in time, ``queue.unavailable`` when
        the broker takes no work, and what the task itself raised.
        """
        asker = secrets.token_urlsafe(12)
        request_id = same or asker
        result = None
        if seconds > 0:
            topic = result_topic(request_id)
            submitting: asyncio.Future[None] | None = None
            try:
                # Listening before anything is sent: the answer can't come too early to be heard.
                with self.results.registered(topic) as future:
                    submitting = asyncio.ensure_future(
                        run_in_threadpool(
                            self._submit,
                            task,
                            lane,
                            payload,
                            request_id=request_id,
                            asker=asker,
                            seconds=seconds,
                        )
                    )
                    await asyncio.shield(submitting)
                    result = await result_within(future, seconds)
            except RedisError:
                raise QUEUE_UNAVAILABLE() from None
            finally:
                if submitting is not None:
                    # The caller is answered now, and need not wait until all is cleared up.
                    leaving = asyncio.ensure_future(self._leave(request_id, asker, submitting))
                    self._leaving.add(leaving)
                    leaving.add_done_callback(self._leaving.discard)
        if result is None:
            raise REQUEST_TOO_SLOW(seconds=seconds)
        return _unwrapped(json.loads(result))

    def hear(self, topic: str, value: str) -> None:
        """Take the result that a notification brings, or word that there is one."""
        if value:
            self.results.fulfil(topic, value)
        else:
            self.results.nudge(topic)

    def _submit(
        self,
        task: str,
        lane: Lane,
        payload: dict[str, Any],
        *,
        request_id: str,
        asker: str,
        seconds: float,
    ) -> None:
        if not self._work.join(request_id, asker, payload, seconds):
            return
        # Each has a message of its own, which expires with it: the first that is taken is the run,
        # and none depends on another's.
        sent = self._broker.send(
            task, lane, {"request_id": request_id}, task_id=asker, expires=seconds
        )
        if not sent:
            raise QUEUE_UNAVAILABLE()

    async def _leave(self, request_id: str, asker: str, submitting: asyncio.Future[None]) -> None:
        # A thread can't be cancelled: to leave before it has joined would be in vain.
        await asyncio.wait({submitting})
        try:
            await run_in_threadpool(self._work.leave, request_id, asker)
        except RedisError as error:
            # Its patience ends by itself; until then somebody may work for it.
            log.warning("request.not_left", reason=type(error).__name__)

    async def _look(self, topics: list[str]) -> Mapping[str, str | bytes]:
        values = await self._client.mget([result_key(request_of(topic)) for topic in topics])
        found = zip(topics, values, strict=True)
        return {topic: value for topic, value in found if value is not None}


def _unwrapped(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        error = answer["error"]
        raise DomainError(
            Kind(error["kind"]), error["code"], error["message"], retry_after=error["retry_after"]
        )
    result: dict[str, Any] = answer["result"]
    return result
