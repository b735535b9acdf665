"""Pads the duration of responses, so that it doesn't reveal whether an e-mail address is known."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# The duration of each padded response is a multiple of ``STEP_SECONDS``. The step must exceed the
# duration of the slowest request, because a longer response would reveal whether an e-mail address
# is known. The step must be so short that nobody notices the delay.
STEP_SECONDS = 0.2


@asynccontextmanager
async def pad_duration() -> AsyncIterator[None]:
    """Extend the duration of the ``async with`` block to a multiple of ``STEP_SECONDS``.

    The duration is also extended if the block raises an exception.
    """
    loop = asyncio.get_running_loop()
    start = loop.time()
    try:
        yield
    finally:
        await asyncio.sleep(STEP_SECONDS - (loop.time() - start) % STEP_SECONDS)
