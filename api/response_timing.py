"""Pads response times, so that they don't reveal whether an address is known or a sender exists."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# The duration of a padded response is a multiple of ``STEP_SECONDS``. ``STEP_SECONDS`` must exceed
# the duration of the slowest request, so that all padded responses take equally long.
# ``STEP_SECONDS`` must also be so short that nobody notices the delay.
STEP_SECONDS = 0.2


@asynccontextmanager
async def pad_duration() -> AsyncIterator[None]:
    """Extend the block to a multiple of ``STEP_SECONDS``, even if it raises an exception."""
    start = asyncio.get_running_loop().time()
    try:
        yield
    finally:
        await _wait_for_step(start)


@asynccontextmanager
async def pad_failure() -> AsyncIterator[None]:
    """Extend the block like ``pad_duration``, but only if it raises an exception."""
    start = asyncio.get_running_loop().time()
    try:
        yield
    except Exception:  # All errors must take equally long, so that the time doesn't tell the cause.
        await _wait_for_step(start)
        raise


async def _wait_for_step(start: float) -> None:
    duration = asyncio.get_running_loop().time() - start
    await asyncio.sleep(STEP_SECONDS - duration % STEP_SECONDS)
