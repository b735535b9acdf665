"""Receives notifications from Redis, and passes them to listeners in the API process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress

import redis.asyncio

from core.logging import get_logger
from storage.redis.notifications import CHANNEL, build_channel_name, build_job_topic

log = get_logger(__name__)

# The interval at which an event stream checks its jobs. Event streams check their jobs even without
# notifications, because notifications can get lost.
CHECK_EVERY_SECONDS = 1.0
# A Redis connection without any message or ping response for this time counts as broken.
_MAX_SILENCE_SECONDS = 4
_PAUSE_BEFORE_RECONNECTING_SECONDS = 0.3

# A function that receives the topic and the value of each notification.
Listener = Callable[[str, str], None]


class NotificationsSilent(Exception):
    pass


class Subscriber:
    """Passes notifications from Redis to listeners.

    Workers send a notification to all API processes, or to the one with the name ``waiter``.
    """

    def __init__(self, client: redis.asyncio.Redis, waiter: str | None) -> None:
        self._client = client
        self._channels = {CHANNEL, build_channel_name(waiter)}
        self._listeners: list[Listener] = []

    @contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    async def run(self) -> None:
        while True:
            try:
                async for message in self._messages():
                    topic, _, value = message.partition(" ")
                    for listener in tuple(self._listeners):
                        listener(topic, value)
            except Exception as error:  # noqa: BLE001 - no failure may end the subscription
                log.warning("subscriber.reconnecting", reason=type(error).__name__)
                await asyncio.sleep(_PAUSE_BEFORE_RECONNECTING_SECONDS)

    async def _messages(self) -> AsyncIterator[str]:
        async with self._client.pubsub() as pubsub:
            await pubsub.subscribe(*self._channels)
            silent_seconds = 0
            while silent_seconds < _MAX_SILENCE_SECONDS:
                message = await pubsub.get_message(timeout=1.0)
                if message is None:
                    silent_seconds += 1
                    # The response to a ping resets ``silent_seconds``, so that an idle connection
                    # doesn't count as broken.
                    await pubsub.ping()
                    continue
                silent_seconds = 0
                if message["type"] == "message":
                    yield message["data"].decode()
        raise NotificationsSilent


@contextmanager
def watch_jobs(
    subscriber: Subscriber, job_ids: Collection[int]
) -> Iterator[Callable[[], Awaitable[None]]]:
    """Yield a function that waits until one of the jobs changes.

    The yielded function waits at most ``CHECK_EVERY_SECONDS``.
    """
    changed = asyncio.Event()
    topics = {build_job_topic(job_id) for job_id in job_ids}

    def listener(topic: str, _: str) -> None:
        if topic in topics:
            changed.set()

    async def wait_for_change() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), CHECK_EVERY_SECONDS)
        changed.clear()

    with subscriber.listening(listener):
        yield wait_for_change
