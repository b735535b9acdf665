"""Answers that don't tell by their time what happened behind them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# Well over what the work takes even amid that of others, for who needs a second step shows it; well
# under what a person notices.
STEP_SECONDS = 0.2


@asynccontextmanager
async def padded_duration() -> AsyncIterator[None]:
    """Let the block take a whole number of steps, whether it ends well or not."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        yield
    finally:
        await asyncio.sleep(STEP_SECONDS - (loop.time() - began) % STEP_SECONDS)
