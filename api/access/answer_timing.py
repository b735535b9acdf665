"""Answers whose duration does not reveal what happened behind them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# Longer than the work ever takes under load: an answer that needed a second step would reveal what
# happened. Shorter than a person notices.
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
