"""Pads response times, so that they don't reveal whether an address is known or a sender exists."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# The duration of a padded response is a multiple of this time. The time must exceed the slowest
# request, so that all padded responses take equally long. The time must also be so short that
# nobody notices the delay.
STEP_SECONDS = 0.2


@asynccontextmanager
async def pad_duration() -> AsyncIterator[None]:
    """Wait at the end of the ``async with`` block until a multiple of ``STEP_SECONDS`` has passed.

    Exceptions of the block are delayed too.
    """
    start = asyncio.get_running_loop().time()
    try:
        yield
    finally:
        await _wait_for_step(start)


@asynccontextmanager
async def pad_failure() -> AsyncIterator[None]:
    """Delay only exceptions of the ``async with`` block, in the same way as ``pad_duration``."""
    start = asyncio.get_running_loop().time()
    try:
        yield
    except Exception:  # All errors must take equally long, so that the time doesn't tell the cause.
        await _wait_for_step(start)
        raise


async def _wait_for_step(start: float) -> None:
    duration = asyncio.get_running_loop().time() - start
    await asyncio.sleep(STEP_SECONDS - duration % STEP_SECONDS)
