"""Lets workers do work for a request, such as generating metadata, and waits for the result.

Concurrent calls with the same input share one run of the work, even across API processes. A shared
run is cancelled when all its callers have gone away.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import orjson
from redis.exceptions import RedisError

from api.waiting.waiters import Waiters
from core.errors import DomainError, Kind, requests
from core.ids import AccountId
from core.logging import get_logger
from core.queues import RequestKind
from storage.redis import request_scripts
from storage.redis.notifications import build_result_topic
from storage.redis.request_calls import RequestCalls

log = get_logger(__name__)

# If no result arrives in this time, the message to the workers is sent again, because messages can
# get lost. The delay doubles after each message, so that repeated messages don't fill the queue.
RESEND_AFTER_SECONDS = 2.0


class WorkerCalls:
    def __init__(self, calls: RequestCalls) -> None:
        self._calls = calls
        self.results: Waiters[str | bytes] = Waiters(calls.fetch_results)

    async def call(
        self,
        kind: RequestKind,
        payload: dict[str, Any],
        *,
        seconds: float,
        account_id: AccountId | None = None,
        shared_key: str | None = None,
    ) -> dict[str, Any]:
        """Return the result of the work, or raise the error that made the work fail.

        Raises ``request.too_slow`` if no result arrives within ``seconds``.

        Args:
            shared_key: a key that identifies all inputs of the work, or ``None`` if calls don't
                share a run.
        """
        caller = self._calls.create_caller_id()
        request_id = request_scripts.build_request_id(kind.queue, shared_key or caller)
        join = partial(
            self._calls.add_caller, request_id, caller, payload, kind=kind, account_id=account_id
        )
        result = None
        if seconds > 0:
            # Register the call before sending the message, so that a quick result isn't missed.
            with self.results.register(build_result_topic(request_id)) as future:
                try:
                    await join(seconds=seconds)
                    result = await _wait_and_resend(future, join, seconds)
                except RedisError:
                    raise requests.QUEUE_UNAVAILABLE() from None
                finally:
                    # Remove the caller from the callers who wait for the request's result, even
                    # after an error or a cancellation. ``remove_caller`` works in the background,
                    # so that the response isn't delayed.
                    self._calls.remove_caller(request_id, caller)
        if result is None and self.results.closed:
            raise requests.QUEUE_UNAVAILABLE()
        if result is None:
            raise requests.REQUEST_TOO_SLOW(seconds=seconds)
        outcome: dict[str, dict[str, Any]] = orjson.loads(result)
        if "error" in outcome:
            error = outcome["error"]
            raise DomainError(**{**error, "kind": Kind(error["kind"])})
        return outcome["result"]

    def deliver(self, topic: str, value: str) -> None:
        """Pass the result in a notification to the waiting callers.

        If a notification contains no result, the background loop reads the result from Redis.
        """
        if value:
            self.results.fulfil(topic, value)
        else:
            self.results.nudge(topic)


async def _wait_and_resend(
    future: asyncio.Future[str | bytes | None], join: Callable[..., Awaitable[None]], seconds: float
) -> str | bytes | None:
    """Repeat the message to the workers at intervals, because it may have been lost.

    Return ``None`` if no result arrives in time.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    pause = RESEND_AFTER_SECONDS
    while (remaining := deadline - clock()) > 0:
        await asyncio.wait({future}, timeout=min(remaining, pause))
        if future.done():
            return future.result()
        if (remaining := deadline - clock()) > 0:
            pause *= 2
            try:
                await join(seconds=remaining, again=True)
            except (RedisError, DomainError) as error:
                # Ignore a failure to resend the message, because the first message may still be in
                # the queue.
                log.warning("request.not_sent_again", reason=type(error).__name__)
    return None
