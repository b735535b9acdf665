"""Pads response times, so that the times don't reveal whether an address or sender exists."""

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
    start = asyncio.get_running_loop().time()
    try:
        yield
    finally:
        await _wait_for_step(start)


@asynccontextmanager
async def pad_failure() -> AsyncIterator[None]:
    """Pad the duration like ``pad_duration``, but only if the block raises an exception."""
    start = asyncio.get_running_loop().time()
    try:
        yield
    except Exception:  # Every error must take as long as the others, so that none is recognised.
        await _wait_for_step(start)
        raise


async def _wait_for_step(start: float) -> None:
    duration = asyncio.get_running_loop().time() - start
    await asyncio.sleep(STEP_SECONDS - duration % STEP_SECONDS)
