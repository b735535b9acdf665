"""Pads the response time, so that it doesn't reveal whether an e-mail address is known."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# Every padded response takes a multiple of ``STEP_SECONDS``. ``STEP_SECONDS`` must exceed the time
# of the slowest request, because a slower response would reveal whether an address is known.
# ``STEP_SECONDS`` must be so short that nobody notices the delay.
STEP_SECONDS = 0.2


@asynccontextmanager
async def pad_duration() -> AsyncIterator[None]:
    """Delay the end of the ``async with`` block, so that it takes a multiple of ``STEP_SECONDS``.

    Leaving the block is also delayed if the block raises an exception.
    """
    loop = asyncio.get_running_loop()
    start = loop.time()
    try:
        yield
    finally:
        await asyncio.sleep(STEP_SECONDS - (loop.time() - start) % STEP_SECONDS)
