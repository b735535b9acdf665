"""Tests limits on requests in progress, concurrent calls, password hashes, and body memory."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import pytest

from api.limits import body_budgets
from api.limits import places as places_module
from api.limits.body_budgets import HOLDER_FRACTION, MAX_SMALL_BODY_BYTES, BodyBudget, HeldBody
from api.limits.bulkhead import Bulkhead, KeyedBulkhead
from api.limits.bulkheads import PASSWORDS
from api.limits.places import RECEIVED_AT_KEY, Place, Places, set_current_place
from core.errors import DomainError
from core.errors.mailing import LIST_BUSY
from core.errors.requests import BODY_TOO_MANY_UNFINISHED, SERVICE_BUSY

pytestmark = pytest.mark.anyio
T = TypeVar("T")


@pytest.fixture
def release_work() -> threading.Event:
    return threading.Event()


async def _error(future: asyncio.Future[bool]) -> tuple[str, int | None]:
    with pytest.raises(DomainError) as error:
        await asyncio.wait_for(future, 20)
    return error.value.code, error.value.retry_after


async def test_bulkhead_rejects_callers_beyond_its_threads_and_serves_the_others(
    release_work: threading.Event,
) -> None:
    bulkhead = Bulkhead("rush", 2, wait_seconds=0.05)
    served_calls = [asyncio.ensure_future(bulkhead.run(release_work.wait, 30)) for _ in range(2)]
    rejected_calls = [asyncio.ensure_future(bulkhead.run(release_work.wait, 30)) for _ in range(3)]
    for call in rejected_calls:
        assert await _error(call) == ("service.busy", 1)
    release_work.set()
    assert await asyncio.gather(*served_calls) == [True, True]
    assert await bulkhead.run(release_work.is_set)


async def test_bulkhead_limits_how_many_callers_wait_for_a_thread(
    release_work: threading.Event,
) -> None:
    bulkhead = Bulkhead("queue", 1, wait_seconds=30, max_waiting=1)
    accepted_calls = [asyncio.ensure_future(bulkhead.run(release_work.wait, 30)) for _ in range(2)]
    await asyncio.sleep(0)
    rejected_call = asyncio.ensure_future(bulkhead.run(release_work.is_set))
    assert await _error(rejected_call) == ("service.busy", 1)
    release_work.set()
    assert await asyncio.gather(*accepted_calls) == [True, True]


async def test_hanging_work_in_one_bulkhead_takes_no_thread_of_another(
    release_work: threading.Event,
) -> None:
    hanging_bulkhead = Bulkhead("hanging", 1)
    other_bulkhead = Bulkhead("other", 1)
    hanging_call = asyncio.ensure_future(hanging_bulkhead.run(release_work.wait, 30))
    assert await other_bulkhead.run(lambda: 8) == 8
    assert not hanging_call.done()
    release_work.set()
    await hanging_call


async def test_arguments_of_failed_work_are_freed_without_garbage_collection() -> None:
    """Otherwise, refused bodies of two megabytes stay in memory until the next collection."""

    class Body:
        pass

    def refuse(_: Body) -> None:
        raise BODY_TOO_MANY_UNFINISHED()

    async def fail() -> None:
        body = Body()
        weakref.finalize(body, loop.call_soon_threadsafe, is_freed.set)
        with suppress(DomainError):
            await Bulkhead("failing", 1).run(refuse, body)

    loop = asyncio.get_running_loop()
    is_freed = asyncio.Event()
    gc.disable()
    try:
        await fail()
        await asyncio.wait_for(is_freed.wait(), 20)
    finally:
        gc.enable()


async def test_running_work_keeps_its_thread_after_its_caller_disconnects(
    release_work: threading.Event,
) -> None:
    """Callers who disconnect early must not be able to start an unlimited number of threads."""
    bulkhead = Bulkhead("left", 1, wait_seconds=0.05)
    disconnected_call = asyncio.ensure_future(bulkhead.run(release_work.wait, 30))
    await asyncio.sleep(0.01)
    disconnected_call.cancel()
    await asyncio.gather(disconnected_call, return_exceptions=True)
    rejected_call = asyncio.ensure_future(bulkhead.run(lambda: True))
    assert await _error(rejected_call) == ("service.busy", 1)
    release_work.set()
    bulkhead = Bulkhead("left", 1, wait_seconds=20)
    assert await bulkhead.run(lambda: True)


async def test_queued_work_is_cancelled_when_its_caller_disconnects(
    release_work: threading.Event,
) -> None:
    bulkhead = Bulkhead("gone", 1, wait_seconds=30)
    running_call = asyncio.ensure_future(bulkhead.run(release_work.wait, 30))
    results: list[int] = []
    disconnected_call = asyncio.ensure_future(bulkhead.run(results.append, 1))
    await asyncio.sleep(0.01)
    disconnected_call.cancel()
    await asyncio.gather(disconnected_call, return_exceptions=True)
    release_work.set()
    await running_call
    assert await bulkhead.run(lambda: 8) == 8
    assert results == []


async def test_calls_with_one_key_never_take_all_threads_of_a_bulkhead(
    release_work: threading.Event,
) -> None:
    bulkhead = Bulkhead("lists", 4, wait_seconds=20)
    shares = KeyedBulkhead(bulkhead, 1, LIST_BUSY, wait_seconds=0.05)
    running_call = asyncio.ensure_future(shares.run(1, release_work.wait, 30))
    await asyncio.sleep(0)
    rejected_calls = [asyncio.ensure_future(shares.run(1, lambda: True)) for _ in range(20)]
    assert await shares.run(2, lambda: 8) == 8
    for call in rejected_calls:
        assert await _error(call) == ("list.busy", 1)
    release_work.set()
    assert await running_call
    assert await shares.run(1, lambda: 9) == 9


async def test_waiting_accounts_take_turns(release_work: threading.Event) -> None:
    bulkhead = Bulkhead("turns", 1, wait_seconds=20)
    order: list[str] = []
    running_call = asyncio.ensure_future(bulkhead.run(release_work.wait, 30))
    await asyncio.sleep(0)
    waiting_calls = [
        asyncio.ensure_future(_run_for(account, bulkhead, order.append, account))
        for account in ("anna", "anna", "anna", "ben")
    ]
    await asyncio.sleep(0)
    release_work.set()
    await asyncio.gather(running_call, *waiting_calls)
    assert order == ["anna", "ben", "anna", "anna"]


async def test_late_call_is_rejected_only_while_another_call_waits(
    release_work: threading.Event,
) -> None:
    bulkhead = Bulkhead("late", 1, wait_seconds=20)
    running_call = asyncio.ensure_future(bulkhead.run(release_work.wait, 30))
    await asyncio.sleep(0)
    late_calls = [
        asyncio.ensure_future(
            _run_for(account, bulkhead, lambda: True, received_at=time.monotonic() - 3)
        )
        for account in ("anna", "ben")
    ]
    await asyncio.sleep(0)
    release_work.set()
    assert await _error(late_calls[0]) == ("service.busy", 1)
    assert await running_call
    assert await late_calls[1]


async def test_opt_outs_wait_however_many_callers_wait(release_work: threading.Event) -> None:
    bulkhead = Bulkhead("leaving", 1, wait_seconds=0.05, max_waiting=1)
    running_call = asyncio.ensure_future(bulkhead.run(release_work.wait, 30))
    await asyncio.sleep(0)
    opt_outs = [
        asyncio.ensure_future(_run_for("ben", bulkhead, lambda: True, is_never_refused=True))
        for _ in range(5)
    ]
    await asyncio.sleep(0.2)
    release_work.set()
    assert await asyncio.gather(running_call, *opt_outs) == [True] * 6


async def _run_for(
    account: str,
    bulkhead: Bulkhead,
    work: Callable[..., T],
    *args: object,
    received_at: float | None = None,
    is_never_refused: bool = False,
) -> T:
    """Run work in a bulkhead for a request of the account."""
    scope = {} if received_at is None else {RECEIVED_AT_KEY: received_at}
    place = Place(
        Places(), account, scope=scope, max_wait_seconds=2, is_never_refused=is_never_refused
    )
    set_current_place(place)
    return await bulkhead.run(work, *args)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    """Few places: an account has 3 of 8, but never fewer than 2, and all senders have 4."""
    monkeypatch.setattr(places_module, "MAX_PLACES", 8)
    monkeypatch.setattr(places_module, "ACCOUNT_FRACTION", 2.5)
    monkeypatch.setattr(places_module, "MIN_PLACES_PER_ACCOUNT", 2)
    return Places()


def _take(places: Places, account: str, **options: bool) -> str:
    """Take a place, and return the code of the error, or an empty string."""
    try:
        Place(places, account, **options).take()  # type: ignore[arg-type]
    except DomainError as error:
        return error.code
    return ""


def test_account_with_its_share_of_places_is_refused_and_others_are_served(places: Places) -> None:
    refused = "requests.too_many_of_yours"
    assert [_take(places, "anna") for _ in range(5)] == ["", "", "", refused, refused]
    assert _take(places, "ben") == ""


def test_small_callers_are_served_although_the_places_are_taken(places: Places) -> None:
    for account in ("anna", "ben", "carl"):
        for _ in range(3):
            _take(places, account)
    assert places.total == 8
    assert [_take(places, "dora") for _ in range(3)] == ["", "", "service.busy"]


def test_all_senders_together_have_only_half_of_the_places(places: Places) -> None:
    codes = [_take(places, f"sender {number}", is_sender=True) for number in range(6)]
    assert codes == ["", "", "", "", "service.busy", "service.busy"]
    assert _take(places, "anna") == ""


def test_opt_outs_take_no_place_and_are_never_refused(places: Places) -> None:
    assert {_take(places, "leaving", is_never_refused=True) for _ in range(50)} == {""}
    assert _take(places, "anna") == ""


def test_waiting_request_holds_no_place(places: Places) -> None:
    place = Place(places, "anna")
    place.take()
    with place.paused():
        assert places.total == 0
    assert places.total == places.by_account["anna"] == 1
    place.leave()
    with place.paused():
        place.leave()
    assert (places.total, places.by_account) == (0, {})


LARGE_POOL_BYTES = 8 * HOLDER_FRACTION * MAX_SMALL_BODY_BYTES
SMALL_POOL_BYTES = 4 * HOLDER_FRACTION * MAX_SMALL_BODY_BYTES


@pytest.fixture
def body_budget(monkeypatch: pytest.MonkeyPatch) -> BodyBudget:
    """A budget that allows each caller 512 KB of large request bodies and 256 KB of small ones."""
    monkeypatch.setattr(body_budgets, "MAX_HELD_LARGE_BODY_BYTES", LARGE_POOL_BYTES)
    monkeypatch.setattr(body_budgets, "MAX_HELD_SMALL_BODY_BYTES", SMALL_POOL_BYTES)
    return BodyBudget()


def test_small_bodies_are_accepted_when_the_budget_for_large_ones_is_exhausted(
    body_budget: BodyBudget,
) -> None:
    for number in range(HOLDER_FRACTION):
        assert HeldBody(body_budget, str(number)).take(LARGE_POOL_BYTES // HOLDER_FRACTION) is None
    assert HeldBody(body_budget, "anna").take(MAX_SMALL_BODY_BYTES + 1) is SERVICE_BUSY
    assert HeldBody(body_budget, "anna").take(MAX_SMALL_BODY_BYTES) is None
    assert HeldBody(body_budget, "1").take(MAX_SMALL_BODY_BYTES) is None


def test_body_that_grows_moves_out_of_the_reserve_for_small_bodies(body_budget: BodyBudget) -> None:
    growing_bodies = [HeldBody(body_budget, "anna") for _ in range(4)]
    for body in growing_bodies:
        assert body.take(MAX_SMALL_BODY_BYTES) is None
    assert HeldBody(body_budget, "anna").take(1) is BODY_TOO_MANY_UNFINISHED
    for body in growing_bodies:
        assert body.take(1) is None
    assert HeldBody(body_budget, "anna").take(1) is None


def test_waiting_body_moves_to_the_large_pool_and_frees_the_small_reserve(
    body_budget: BodyBudget,
) -> None:
    waiting_bodies = [HeldBody(body_budget, "anna") for _ in range(8)]
    for body in waiting_bodies:
        assert body.take(MAX_SMALL_BODY_BYTES) is None
        assert body.move_to_large_pool() is None
    last_body = HeldBody(body_budget, "anna")
    assert last_body.take(1) is None
    assert last_body.move_to_large_pool() is BODY_TOO_MANY_UNFINISHED
    waiting_bodies[0].release()
    assert last_body.move_to_large_pool() is None


CALLER_COUNT = 60


async def test_concurrent_password_hashes_and_waiting_logins_are_limited() -> None:
    can_finish = threading.Event()
    all_busy = threading.Event()
    lock = threading.Lock()
    running_calls: list[int] = []
    concurrent_counts: list[int] = []

    def work() -> int:
        with lock:
            running_calls.append(1)
            concurrent_counts.append(len(running_calls))
            if len(running_calls) == PASSWORDS.threads:
                all_busy.set()
        can_finish.wait(30)
        with lock:
            running_calls.pop()
        return 7

    calls = [asyncio.create_task(PASSWORDS.run(work)) for _ in range(CALLER_COUNT)]
    assert await asyncio.to_thread(all_busy.wait, 30)
    with pytest.raises(DomainError) as error:
        await PASSWORDS.run(work)
    assert (error.value.code, error.value.retry_after) == ("login.busy", 5)
    can_finish.set()
    assert await asyncio.gather(*calls) == [7] * CALLER_COUNT
    assert await PASSWORDS.run(lambda: 8) == 8
    assert max(concurrent_counts) == PASSWORDS.threads == 4
