"""Registers and unregisters API callers that wait for the result of a request.

Script calls that are enqueued at the same time share one round trip to Redis. Redis executes script
calls in the order in which they were enqueued. Redis therefore never removes a caller before it has
added the caller.
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
from core.ids import AccountId
from core.logging import get_logger
from core.queues import RequestKind
from core.telemetry import spans
from core.telemetry.attributes import SpanAttributes
from storage.redis import request_scripts
from storage.redis.notifications import parse_result_topic
from storage.task_messages import build_message, queue_name

log = get_logger(__name__)

# If the backlog has fewer requests than ``MIN_QUEUED_REQUESTS``, the age of its oldest request is
# ignored.
MIN_QUEUED_REQUESTS = 10
MAX_QUEUED_REQUESTS = 1_000
# The maximum number of queued requests per owner is half the maximum backlog, so that one owner
# can't fill the backlog.
MAX_QUEUED_REQUESTS_PER_OWNER = 500
# The total size of an owner's inputs in the backlog is limited, because all owners share the memory
# of Redis. The total size of an owner's inputs is checked only when a large input arrives, because
# the check reads the whole backlog.
MAX_QUEUED_BYTES_PER_OWNER = 16 * 1024 * 1024
MAX_SMALL_INPUT_BYTES = 32 * 1024
# If the oldest request in the backlog has waited longer than this, the API refuses new calls,
# because their responses would come too late. Owners without queued requests get twice this limit,
# because they didn't cause the backlog.
MAX_QUEUED_SECONDS = 10.0
_MAX_RETRY_AFTER_SECONDS = 30

# The maximum total size of the inputs in one round trip to Redis, because large inputs would delay
# small inputs. An input above this size is sent in a separate round trip.
MAX_ROUND_TRIP_BYTES = 256 * 1024

Argument = str | bytes | int
# Sends a message with a request id, and returns whether the broker accepted it.
Send = Callable[[RequestKind, str], Awaitable[bool]]


@dataclass(frozen=True, eq=False)
class _ScriptCall:
    script: str
    keys: list[str]
    arguments: list[Argument]
    result: asyncio.Future[Any]
    size: int = 0


class RequestCalls:
    """The requests whose results callers in this API process are waiting for.

    ``send`` sends messages to a broker on a separate server. If the broker and the cache are the
    same Redis server, ``send`` is ``None`` and a Redis script enqueues the messages.
    """

    def __init__(
        self, client: redis.asyncio.Redis, waiter: str | None, send: Send | None = None
    ) -> None:
        self._client = client
        self._send = send
        self._waiter = waiter or ""
        self._script_calls: deque[_ScriptCall] = deque()
        self._wake = asyncio.Event()

    def create_caller_id(self) -> str:
        """Return a random id with this process's name, so that only this process is notified."""
        return f"{self._waiter}.{secrets.token_urlsafe(12)}"

    async def add_caller(
        self,
        request_id: str,
        caller: str,
        payload: dict[str, Any],
        *,
        kind: RequestKind,
        seconds: float,
        account_id: AccountId | None = None,
        again: bool = False,
    ) -> None:
        """Add a caller to a request, and notify the workers unless one already runs the request.

        Every API call sends its own message, even after an identical call, so that no caller
        depends on another caller's message. Raises ``queue.overloaded``,
        ``queue.too_many_of_yours``, ``queue.unavailable`` or ``RedisError``.

        ``again``: whether the caller is already waiting for the result. Limits on waiting callers
        don't apply to such a caller. If Redis has lost the request's keys or its message, adding
        the caller again restores the request.
        """
        # A worker runs a request only once for several identical API calls. The worker's spans
        # belong to the trace of the first of the identical API calls.
        trace = spans.current_traceparent()
        traced_payload = payload
        if trace is not None:
            traced_payload = {**payload, request_scripts.TRACEPARENT: trace}
        text = orjson.dumps(traced_payload)
        message = b""
        if self._send is None:
            task_arguments = {"request_id": request_id}
            message = build_message(kind.task, kind.queue, task_arguments, task_id=caller)
        keys = [*request_scripts.build_keys(request_id), queue_name(kind.queue)]
        arguments: list[Argument] = [
            caller,
            request_scripts.to_milliseconds(seconds),
            text,
            message,
            "" if account_id is None else str(account_id),
            MIN_QUEUED_REQUESTS,
            MAX_QUEUED_REQUESTS,
            MAX_QUEUED_REQUESTS_PER_OWNER,
            request_scripts.to_milliseconds(MAX_QUEUED_SECONDS),
            int(again),
            MAX_SMALL_INPUT_BYTES,
            MAX_QUEUED_BYTES_PER_OWNER,
        ]
        attributes: SpanAttributes = {"messaging.destination.name": queue_name(kind.queue)}
        with spans.step_span(f"send {kind.task}", "producer", attributes):
            script = request_scripts.ADD_CALLER_SCRIPT
            response = await self._enqueue(script, keys, arguments, size=len(text))
        if isinstance(response, list):
            reason, oldest_age = response
            retry_after = min(max(math.ceil(oldest_age / 1000), 1), _MAX_RETRY_AFTER_SECONDS)
            error = QUEUE_OVERLOADED if reason == b"overloaded" else QUEUE_TOO_MANY_OF_YOURS
            raise error(retry_after=retry_after)
        if response is not None and self._send and not await self._send(kind, request_id):
            raise QUEUE_UNAVAILABLE()

    def remove_caller(self, request_id: str, caller: str) -> None:
        """Remove a caller. A request without callers is deleted, unless a worker processes it."""
        keys = request_scripts.build_keys(request_id)
        removal = self._enqueue(request_scripts.REMOVE_CALLER_SCRIPT, keys, [caller])
        removal.add_done_callback(_log_failed_removal)

    async def fetch_results(self, topics: list[str]) -> Mapping[str, bytes | str]:
        """Return the results of finished requests, keyed by notification topic."""
        keys = [request_scripts.build_result_key(parse_result_topic(topic)) for topic in topics]
        values = await self._client.mget(keys)
        results = zip(topics, values, strict=True)
        return {topic: value for topic, value in results if value is not None}

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.flush()

    async def flush(self) -> None:
        while self._script_calls:
            batch = [self._script_calls.popleft()]
            size = batch[0].size
            # Optimization: several Redis scripts per round trip (decision 17).
            while self._script_calls and size + self._script_calls[0].size <= MAX_ROUND_TRIP_BYTES:
                batch.append(self._script_calls.popleft())
                size += batch[-1].size
            responses = await self._execute(batch)
            for script_call, response in zip(batch, responses, strict=True):
                if script_call.result.done():  # The API call that waited was cancelled.
                    continue
                if isinstance(response, Exception):
                    script_call.result.set_exception(response)
                else:
                    script_call.result.set_result(response)

    def _enqueue(
        self, script: str, keys: list[str], arguments: list[Argument], size: int = 0
    ) -> asyncio.Future[Any]:
        result = asyncio.get_running_loop().create_future()
        self._script_calls.append(_ScriptCall(script, keys, arguments, result, size))
        self._wake.set()
        return result

    async def _execute(self, batch: list[_ScriptCall]) -> list[Any]:
        try:
            async with self._client.pipeline(transaction=False) as pipeline:
                for call in batch:
                    pipeline.eval(call.script, len(call.keys), *call.keys, *call.arguments)
                with observe_redis(redis.RedisError):
                    return await pipeline.execute(raise_on_error=False)
        except Exception as error:  # noqa: BLE001 - a lost error would leave callers waiting
            return [error] * len(batch)


def _log_failed_removal(removal: asyncio.Future[Any]) -> None:
    if not removal.cancelled() and (error := removal.exception()):
        # A worker may still run the request, even if no caller is waiting for the result.
        log.warning("request.not_left", reason=type(error).__name__)
