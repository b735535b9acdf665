"""Tests that every response is delayed to a multiple of ``STEP_SECONDS``."""

import asyncio
import time

import pytest

from api.response_timing import STEP_SECONDS, pad_duration

pytestmark = pytest.mark.anyio


async def measure_padded_work(work_seconds: float = 0.0) -> float:
    started_at = time.perf_counter()
    async with pad_duration():
        await asyncio.sleep(work_seconds)
    return time.perf_counter() - started_at


async def test_reply_is_padded_to_a_full_time_step() -> None:
    for work_seconds in (0.0, 0.01, 0.05):
        assert await measure_padded_work(work_seconds) >= STEP_SECONDS * 0.95


async def test_failed_reply_is_padded_to_a_full_time_step() -> None:
    started_at = time.perf_counter()
    with pytest.raises(LookupError):
        async with pad_duration():
            raise LookupError
    assert time.perf_counter() - started_at >= STEP_SECONDS * 0.95


async def test_thousand_padded_replies_wait_concurrently() -> None:
    started_at = time.perf_counter()
    await asyncio.gather(*(measure_padded_work() for _ in range(1000)))
    # If the replies waited one after another, all replies together would take 1000 times
    # ``STEP_SECONDS``.
    assert time.perf_counter() - started_at < 1000 * STEP_SECONDS / 5
