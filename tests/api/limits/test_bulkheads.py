"""Bulkheads, the budget of bodies, and how many passwords are hashed at once."""

import asyncio
import threading

import pytest

from api.limits import body_budgets
from api.limits.body_budgets import HOLDER_FRACTION, MAX_SMALL_BODY_BYTES, BodyBudget, HeldBody
from api.limits.bulkhead import Bulkhead, KeyedBulkhead
from api.limits.bulkheads import PASSWORDS
from core.errors import DomainError
from core.errors.mailing import LIST_BUSY
from core.errors.requests import BODY_TOO_MANY_UNFINISHED, SERVICE_BUSY

pytestmark = pytest.mark.anyio


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


async def _error(waiting: asyncio.Future[bool]) -> tuple[str, int | None]:
    with pytest.raises(DomainError) as caught:
        await asyncio.wait_for(waiting, 20)
    return caught.value.code, caught.value.retry_after


async def test_bulkhead_rejects_callers_beyond_its_threads_and_serves_the_others(
    gate: threading.Event,
) -> None:
    bulkhead = Bulkhead("rush", 2, wait_seconds=0.05)
    served = [asyncio.ensure_future(bulkhead.run(gate.wait, 30)) for _ in range(2)]
    waiting = [asyncio.ensure_future(bulkhead.run(gate.wait, 30)) for _ in range(3)]
    for each in waiting:
        assert await _error(each) == ("service.busy", 1)
    gate.set()
    assert await asyncio.gather(*served) == [True, True]
    assert await bulkhead.run(gate.is_set)


async def test_bulkhead_limits_how_many_callers_wait_for_a_thread(gate: threading.Event) -> None:
    bulkhead = Bulkhead("queue", 1, wait_seconds=30, max_waiting=1)
    begun = [asyncio.ensure_future(bulkhead.run(gate.wait, 30)) for _ in range(2)]
    await asyncio.sleep(0)
    refused = asyncio.ensure_future(bulkhead.run(gate.is_set))
    assert await _error(refused) == ("service.busy", 1)
    gate.set()
    assert await asyncio.gather(*begun) == [True, True]


async def test_hanging_work_in_one_bulkhead_takes_no_thread_of_another(
    gate: threading.Event,
) -> None:
    hanging = Bulkhead("hanging", 1)
    other = Bulkhead("other", 1)
    stuck = asyncio.ensure_future(hanging.run(gate.wait, 30))
    assert await other.run(lambda: 8) == 8
    assert not stuck.done()
    gate.set()
    await stuck


async def test_running_work_keeps_its_thread_after_its_caller_disconnects(
    gate: threading.Event,
) -> None:
    """Else callers who come and go would begin any number of threads."""
    bulkhead = Bulkhead("left", 1, wait_seconds=0.05)
    left = asyncio.ensure_future(bulkhead.run(gate.wait, 30))
    await asyncio.sleep(0.01)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    refused = asyncio.ensure_future(bulkhead.run(lambda: True))
    assert await _error(refused) == ("service.busy", 1)
    gate.set()
    bulkhead = Bulkhead("left", 1, wait_seconds=20)
    assert await bulkhead.run(lambda: True)


async def test_queued_work_is_cancelled_when_its_caller_disconnects(gate: threading.Event) -> None:
    bulkhead = Bulkhead("gone", 1, wait_seconds=30)
    first = asyncio.ensure_future(bulkhead.run(gate.wait, 30))
    done: list[int] = []
    gone = asyncio.ensure_future(bulkhead.run(done.append, 1))
    await asyncio.sleep(0.01)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    gate.set()
    await first
    assert await bulkhead.run(lambda: 8) == 8
    assert done == []


async def test_calls_with_one_key_never_take_all_threads_of_a_bulkhead(
    gate: threading.Event,
) -> None:
    bulkhead = Bulkhead("lists", 4, wait_seconds=20)
    shares = KeyedBulkhead(bulkhead, 1, LIST_BUSY, wait_seconds=0.05)
    held = asyncio.ensure_future(shares.run(1, gate.wait, 30))
    await asyncio.sleep(0)
    waiting = [asyncio.ensure_future(shares.run(1, lambda: True)) for _ in range(20)]
    assert await shares.run(2, lambda: 8) == 8
    for each in waiting:
        assert await _error(each) == ("list.busy", 1)
    gate.set()
    assert await held
    assert await shares.run(1, lambda: 9) == 9


LARGE = 8 * HOLDER_FRACTION * MAX_SMALL_BODY_BYTES
SMALL = 4 * HOLDER_FRACTION * MAX_SMALL_BODY_BYTES


@pytest.fixture
def body_budget(monkeypatch: pytest.MonkeyPatch) -> BodyBudget:
    """A budget that allows each caller 512 KB of large request bodies and 256 KB of small ones."""
    monkeypatch.setattr(body_budgets, "MAX_HELD_LARGE_BODY_BYTES", LARGE)
    monkeypatch.setattr(body_budgets, "MAX_HELD_SMALL_BODY_BYTES", SMALL)
    return BodyBudget()


def test_small_bodies_are_accepted_when_the_budget_for_large_ones_is_exhausted(
    body_budget: BodyBudget,
) -> None:
    for number in range(HOLDER_FRACTION):
        assert HeldBody(body_budget, str(number)).take(LARGE // HOLDER_FRACTION) is None
    assert HeldBody(body_budget, "anna").take(MAX_SMALL_BODY_BYTES + 1) is SERVICE_BUSY
    assert HeldBody(body_budget, "anna").take(MAX_SMALL_BODY_BYTES) is None
    assert HeldBody(body_budget, "1").take(MAX_SMALL_BODY_BYTES) is None


def test_body_that_grows_moves_out_of_the_reserve_for_small_bodies(body_budget: BodyBudget) -> None:
    growing = [HeldBody(body_budget, "anna") for _ in range(4)]
    for body in growing:
        assert body.take(MAX_SMALL_BODY_BYTES) is None
    assert HeldBody(body_budget, "anna").take(1) is BODY_TOO_MANY_UNFINISHED
    for body in growing:
        assert body.take(1) is None
    assert HeldBody(body_budget, "anna").take(1) is None


def test_waiting_body_moves_to_the_large_pool_and_frees_the_small_reserve(
    body_budget: BodyBudget,
) -> None:
    waiting = [HeldBody(body_budget, "anna") for _ in range(8)]
    for body in waiting:
        assert body.take(MAX_SMALL_BODY_BYTES) is None
        assert body.move_to_large_pool() is None
    another = HeldBody(body_budget, "anna")
    assert another.take(1) is None
    assert another.move_to_large_pool() is BODY_TOO_MANY_UNFINISHED
    waiting[0].release()
    assert another.move_to_large_pool() is None


MAX_CALLERS = 60


async def test_concurrent_password_hashes_and_waiting_logins_are_limited() -> None:
    go_on = threading.Event()
    all_busy = threading.Event()
    guard = threading.Lock()
    running: list[int] = []
    most: list[int] = []

    def work() -> int:
        with guard:
            running.append(1)
            most.append(len(running))
            if len(running) == PASSWORDS.threads:
                all_busy.set()
        go_on.wait(30)
        with guard:
            running.pop()
        return 7

    waiting = [asyncio.create_task(PASSWORDS.run(work)) for _ in range(MAX_CALLERS)]
    assert await asyncio.to_thread(all_busy.wait, 30)
    with pytest.raises(DomainError) as caught:
        await PASSWORDS.run(work)
    assert (caught.value.code, caught.value.retry_after) == ("login.busy", 5)
    go_on.set()
    assert await asyncio.gather(*waiting) == [7] * MAX_CALLERS
    assert await PASSWORDS.run(lambda: 8) == 8
    assert max(most) == PASSWORDS.threads == 4
