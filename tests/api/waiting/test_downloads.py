"""Slow readers of files are bounded for each caller; quick ones are not counted."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from api.waiting import streams
from api.waiting.streams import SlowDownloads
from api.waiting.waiters import CallerDisconnected

ANNA, BERT = "192.0.2.1", "192.0.2.2"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowDownloads:
    """Where each reader counts as slow after its first piece."""
    monkeypatch.setattr(streams, "MAX_SLOW_DOWNLOADS_OF_A_CALLER", 2)
    monkeypatch.setattr(streams, "MAX_QUICK_SECONDS", 0.0)
    return SlowDownloads()


async def pieces() -> AsyncIterator[bytes]:
    for _ in range(3):
        await asyncio.sleep(0.001)
        yield b"piece"


def test_a_caller_reads_few_files_slowly_at_a_time(slow: SlowDownloads) -> None:
    async def run() -> None:
        held = [slow.watched(ANNA, pieces()) for _ in range(2)]
        for each in held:
            await anext(each)
        with pytest.raises(CallerDisconnected):
            await anext(slow.watched(ANNA, pieces()))
        await anext(slow.watched(BERT, pieces()))
        await held[0].aclose()
        assert [each async for each in slow.watched(ANNA, pieces())] == [b"piece"] * 3

    asyncio.run(run())


def test_quick_readers_are_not_counted(
    slow: SlowDownloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_QUICK_SECONDS", 60.0)

    async def run() -> None:
        held = [slow.watched(ANNA, pieces()) for _ in range(20)]
        assert [await anext(each) for each in held] == [b"piece"] * 20

    asyncio.run(run())
