"""Watches a job without blocking the event loop of asyncio."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from pressroom_client.async_calls import AsyncCalls
from pressroom_client.errors import ApiError, NotReached
from pressroom_client.generated import types
from pressroom_client.jobs import EVENTS, Watch, has_ended


async def watch_job(
    calls: AsyncCalls, job_id: int, *, timeout: float | None = None
) -> AsyncGenerator[types.JobRecord, None]:
    """Yield the record of a job after each change, until the job ends.

    Raises ``TimeoutError`` if the job hasn't ended after about ``timeout`` seconds.
    """
    watch = Watch(job_id, timeout)
    while True:
        failure: NotReached | ApiError | None = None
        try:
            async with aclosing(calls._call_events(EVENTS, **watch.create_arguments())) as events:
                async for event in events:
                    job = watch.read_event(event)
                    yield job
                    if has_ended(job):
                        return
                    watch.check_deadline()
        except (NotReached, ApiError) as error:
            failure = error
        await asyncio.sleep(watch.next_pause(failure))
