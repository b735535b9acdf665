import asyncio
import time

import pytest

from api.response_timing import STEP_SECONDS, pad_duration

pytestmark = pytest.mark.anyio


async def paced(work: float = 0.0) -> float:
    began = time.perf_counter()
    async with pad_duration():
        await asyncio.sleep(work)
    return time.perf_counter() - began


async def test_what_takes_longer_does_not_show() -> None:
    for work in (0.0, 0.01, 0.05):
        assert await paced(work) >= STEP_SECONDS * 0.95


async def test_what_breaks_does_not_show() -> None:
    began = time.perf_counter()
    with pytest.raises(LookupError):
        async with pad_duration():
            raise LookupError
    assert time.perf_counter() - began >= STEP_SECONDS * 0.95


async def test_a_thousand_callers_wait_together_on_one_thread() -> None:
    began = time.perf_counter()
    await asyncio.gather(*(paced() for _ in range(1000)))
    # One after the other they would take a hundred seconds.
    assert time.perf_counter() - began < 1000 * STEP_SECONDS / 5
