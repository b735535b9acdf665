"""Pads the duration of a response, so that it doesn't reveal whether an address is known."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# Every response takes a multiple of this time. The step must exceed the slowest request, because a
# second step would reveal what happened. The step must be so short that nobody notices the delay.
STEP_SECONDS = 0.2


@asynccontextmanager
async def pad_duration() -> AsyncIterator[None]:
    """Extend the duration of the block to a whole number of steps, even if the block raises."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    try:
        yield
    finally:
        await asyncio.sleep(STEP_SECONDS - (loop.time() - start) % STEP_SECONDS)
