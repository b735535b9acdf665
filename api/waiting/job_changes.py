"""What event streams wait for: a job that may have changed."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress

from api.waiting.subscriber import Subscriber
from storage.redis.notifications import job_topic

# How long a lost notification delays an event.
LOOK_EVERY_SECONDS = 1.0


@contextmanager
def job_changes(
    subscriber: Subscriber, job_ids: Collection[int]
) -> Iterator[Callable[[], Awaitable[None]]]:
    """Gives what waits until one of the jobs has changed, or until it is time to look anyway."""
    changed = asyncio.Event()
    topics = {job_topic(job_id) for job_id in job_ids}

    def listener(topic: str, _: str) -> None:
        if topic in topics:
            changed.set()

    async def wait() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), LOOK_EVERY_SECONDS)
        changed.clear()

    with subscriber.listening(listener):
        yield wait
