"""Pads the duration of a response, so that it doesn't reveal whether an address is known."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# Longer than the work ever takes under load, since a second step would reveal what happened;
# shorter than a person notices.
STEP_SECONDS = 0.2


@asynccontextmanager
async def padded_duration() -> AsyncIterator[None]:
    """Extend the block's duration to a whole number of steps, whether it ends well or raises."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        yield
    finally:
        await asyncio.sleep(STEP_SECONDS - (loop.time() - began) % STEP_SECONDS)
