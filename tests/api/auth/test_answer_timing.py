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


async def test_reply_is_padded_to_a_full_time_step() -> None:
    for work in (0.0, 0.01, 0.05):
        assert await paced(work) >= STEP_SECONDS * 0.95


async def test_failed_reply_is_padded_to_a_full_time_step() -> None:
    began = time.perf_counter()
    with pytest.raises(LookupError):
        async with pad_duration():
            raise LookupError
    assert time.perf_counter() - began >= STEP_SECONDS * 0.95


async def test_thousand_padded_replies_wait_concurrently() -> None:
    began = time.perf_counter()
    await asyncio.gather(*(paced() for _ in range(1000)))
    # One after the other they would take a hundred seconds.
    assert time.perf_counter() - began < 1000 * STEP_SECONDS / 5
