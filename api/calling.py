"""Asking a worker and waiting for its answer, for work that nobody does once its caller is gone."""

import json
import math
import secrets
from collections.abc import Mapping
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError
from starlette.concurrency import run_in_threadpool

from api.waiting import Waiters, within
from core.errors import DomainError, Kind, too_slow, unavailable
from core.lanes import Lane
from storage.notifications import request_of, result_topic
from storage.request_work import input_key, result_key
from storage.resources import Resources


class Calls:
    def __init__(self, resources: Resources, client: redis.asyncio.Redis) -> None:
        self._resources = resources
        self._client = client
        self.results: Waiters[str | bytes] = Waiters(self._look)

    async def call(
        self, task: str, lane: Lane, payload: dict[str, Any], *, seconds: float
    ) -> dict[str, Any]:
        """The task's result.

        Raises ``request.too_slow`` when there is none in time, ``queue.unavailable`` when the
        broker takes no work, and what the task itself raised.
        """
        request_id = secrets.token_urlsafe(12)
        result = None
        try:
            # Listening before anything is sent: the answer can't come too early to be heard.
            with self.results.registered(result_topic(request_id)) as future:
                await self._submit(task, lane, request_id, payload, seconds)
                result = await within(future, seconds)
        except RedisError:
            raise _unavailable() from None
        finally:
            if result is None:
                # Too late, or the caller hung up: without its input the work is dropped.
                await self._forget(request_id)
        if result is None:
            raise too_slow("request.too_slow", f"No answer within {seconds:g} s.")
        return _unwrapped(json.loads(result))

    def hear(self, topic: str, value: str) -> None:
        """Take the result that a notification brings."""
        self.results.fulfil(topic, value)

    async def _submit(
        self, task: str, lane: Lane, request_id: str, payload: dict[str, Any], seconds: float
    ) -> None:
        def submit() -> bool:
            self._resources.redis.set(
                input_key(request_id), json.dumps(payload), ex=math.ceil(seconds)
            )
            return self._resources.broker.send(
                task, lane, {"request_id": request_id}, task_id=request_id, expires=seconds
            )

        if not await run_in_threadpool(submit):
            raise _unavailable()

    async def _forget(self, request_id: str) -> None:
        try:
            await self._client.delete(input_key(request_id))
        except RedisError:
            # It expires by itself.
            return

    async def _look(self, topics: list[str]) -> Mapping[str, str | bytes]:
        values = await self._client.mget([result_key(request_of(topic)) for topic in topics])
        found = zip(topics, values, strict=True)
        return {topic: value for topic, value in found if value is not None}


def _unavailable() -> DomainError:
    return unavailable("queue.unavailable", "The queue takes no work at the moment.")


def _unwrapped(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        error = answer["error"]
        raise DomainError(
            Kind(error["kind"]), error["code"], error["message"], retry_after=error["retry_after"]
        )
    result: dict[str, Any] = answer["result"]
    return result
