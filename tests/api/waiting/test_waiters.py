"""Tests of calls that wait for the end of a job, and of the limit of slow downloads."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from api.app import run_in_background
from api.waiting import slow_downloads
from api.waiting import waiters as waiting
from api.waiting.disconnects import CallerDisconnected, run_while_connected
from api.waiting.slow_downloads import SlowDownloads
from api.waiting.waiters import Waiters
from core.errors import DomainError
from core.ids import AccountId

pytestmark = pytest.mark.anyio


class Outcomes:
    """Replaces the look-up of finished jobs, and records which jobs each call looks up."""

    def __init__(self) -> None:
        self.done: set[str] = set()
        self.lookups: list[list[str]] = []
        self.is_broken = False

    async def look_up(self, topics: list[str]) -> Mapping[str, bool]:
        self.lookups.append(topics)
        if self.is_broken:
            raise OSError
        return {topic: True for topic in topics if topic in self.done}


@pytest.fixture
def outcomes() -> Outcomes:
    return Outcomes()


@pytest.fixture
async def waiters(outcomes: Outcomes) -> AsyncIterator[Waiters[bool]]:
    waiters = Waiters(outcomes.look_up)
    async with run_in_background(waiters.run()):
        yield waiters


async def test_waiter_finds_job_that_finished_before_the_wait_began(
    outcomes: Outcomes, waiters: Waiters[bool]
) -> None:
    outcomes.done.add("job:1")
    assert await waiters.wait("job:1", 5) is True


async def test_waiter_finds_finished_job_after_lost_notification(
    outcomes: Outcomes, waiters: Waiters[bool]
) -> None:
    wait = asyncio.create_task(waiters.wait("job:1", 10))
    await asyncio.sleep(0.05)
    outcomes.done.add("job:1")
    assert await wait is True


async def test_waiter_with_lost_notification_is_not_starved_by_other_notifications(
    outcomes: Outcomes, waiters: Waiters[bool]
) -> None:
    waiter_without_notification = asyncio.create_task(waiters.wait("job:lost", 10))
    notified_waiter = asyncio.create_task(waiters.wait("job:busy", 10))
    await asyncio.sleep(0.01)
    outcomes.done.add("job:lost")
    while not waiter_without_notification.done():
        waiters.nudge("job:busy")
        await asyncio.sleep(0.002)
    assert waiter_without_notification.result() is True
    notified_waiter.cancel()


async def test_hundreds_of_waiters_are_looked_up_together(
    outcomes: Outcomes, waiters: Waiters[bool]
) -> None:
    topics = [f"job:{number}" for number in range(500)]
    waits = [asyncio.create_task(waiters.wait(topic, 10)) for topic in topics]
    await asyncio.sleep(0.05)
    outcomes.lookups.clear()
    outcomes.done.update(topics)
    assert all(await asyncio.gather(*waits))
    assert len(outcomes.lookups) <= 2


async def test_expired_wait_is_no_longer_looked_up(
    outcomes: Outcomes, waiters: Waiters[bool]
) -> None:
    assert await waiters.wait("job:1", 0.05) is None
    outcomes.lookups.clear()
    await asyncio.sleep(2 * waiting.LOOK_UP_ALL_SECONDS / 3)
    await asyncio.sleep(2 * waiting.LOOK_UP_ALL_SECONDS / 3)
    assert outcomes.lookups == []


async def test_waiters_are_looked_up_again_after_a_failed_lookup(
    outcomes: Outcomes, waiters: Waiters[bool]
) -> None:
    outcomes.is_broken = True
    wait = asyncio.create_task(waiters.wait("job:1", 10))
    await asyncio.sleep(0.05)
    outcomes.is_broken = False
    outcomes.done.add("job:1")
    assert await wait is True


async def test_waiters_beyond_the_limit_per_process_are_rejected(
    waiters: Waiters[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITING_REQUESTS", 1)
    first_wait = asyncio.create_task(waiters.wait("job:1", 10))
    await asyncio.sleep(0.01)
    with pytest.raises(DomainError) as error:
        await waiters.wait("job:2", 10)
    assert error.value.code == "queue.too_many_waiters"
    first_wait.cancel()


async def test_waiters_beyond_the_limit_per_owner_are_rejected_without_affecting_other_owners(
    outcomes: Outcomes, waiters: Waiters[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITING_REQUESTS_PER_OWNER", 2)
    waits = [
        asyncio.create_task(waiters.wait(f"job:{number}", 10, account_id=AccountId(1)))
        for number in range(2)
    ]
    await asyncio.sleep(0.01)
    with pytest.raises(DomainError) as error:
        waiters.check_room(AccountId(1))
    assert error.value.code == "queue.too_many_of_yours"
    waiters.check_room(AccountId(2))
    outcomes.done |= {"job:0", "job:1"}
    assert await asyncio.gather(*waits) == [True, True]
    waiters.check_room(AccountId(1))


async def test_work_is_cancelled_when_its_caller_disconnects() -> None:
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    async def receive() -> dict[str, object]:
        await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    with pytest.raises(CallerDisconnected):
        await run_while_connected(receive, work())
    assert cancelled.is_set()


FIRST_CALLER_IP = "192.0.2.1"
SECOND_CALLER_IP = "192.0.2.2"


@pytest.fixture
def slow_reads(monkeypatch: pytest.MonkeyPatch) -> SlowDownloads:
    """A limiter of slow downloads that counts every download as slow after its first piece."""
    monkeypatch.setattr(slow_downloads, "MAX_SLOW_DOWNLOADS_PER_CALLER", 2)
    monkeypatch.setattr(slow_downloads, "MAX_QUICK_SECONDS", 0.0)
    return SlowDownloads()


async def pieces() -> AsyncIterator[bytes]:
    for _ in range(3):
        await asyncio.sleep(0.001)
        yield b"piece"


async def test_slow_downloads_are_limited_per_caller(slow_reads: SlowDownloads) -> None:
    downloads = [slow_reads.limit(FIRST_CALLER_IP, pieces()) for _ in range(2)]
    for download in downloads:
        await anext(download)
    with pytest.raises(CallerDisconnected):
        await anext(slow_reads.limit(FIRST_CALLER_IP, pieces()))
    await anext(slow_reads.limit(SECOND_CALLER_IP, pieces()))
    await downloads[0].aclose()
    assert [download async for download in slow_reads.limit(FIRST_CALLER_IP, pieces())] == [
        b"piece"
    ] * 3


async def test_quick_downloads_do_not_count_towards_the_slow_download_limit(
    slow_reads: SlowDownloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_downloads, "MAX_QUICK_SECONDS", 60.0)
    downloads = [slow_reads.limit(FIRST_CALLER_IP, pieces()) for _ in range(20)]
    assert [await anext(download) for download in downloads] == [b"piece"] * 20
