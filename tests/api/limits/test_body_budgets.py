"""Each holder has a share of the memory for bodies, and small bodies a reserve of their own."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from api.limits import body_budgets
from api.limits.body_budgets import MAX_SMALL_BODY_BYTES, SHARES, BodyBudget, HeldBody
from core.refusals.requests import BODY_TOO_MANY_UNFINISHED, SERVICE_BUSY

LARGE, SMALL = 8 * SHARES * MAX_SMALL_BODY_BYTES, 4 * SHARES * MAX_SMALL_BODY_BYTES


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> BodyBudget:
    """A share is eight of the largest small bodies, and four of them in the reserve for those."""
    monkeypatch.setattr(body_budgets, "MAX_HELD_LARGE_BODY_BYTES", LARGE)
    monkeypatch.setattr(body_budgets, "MAX_HELD_SMALL_BODY_BYTES", SMALL)
    return BodyBudget()


def test_a_holder_takes_its_share_and_no_more(budget: BodyBudget) -> None:
    first, second = HeldBody(budget, "anna"), HeldBody(budget, "anna")
    assert first.take(LARGE // SHARES) is None
    assert second.take(MAX_SMALL_BODY_BYTES + 1) is BODY_TOO_MANY_UNFINISHED
    assert HeldBody(budget, "bert").take(MAX_SMALL_BODY_BYTES + 1) is None
    first.release()
    assert second.take(MAX_SMALL_BODY_BYTES + 1) is None


def test_a_body_counts_for_each_of_its_holders(budget: BodyBudget) -> None:
    assert HeldBody(budget, "here", "anna").take(LARGE // SHARES) is None
    for holders in (("there", "anna"), ("here", "bert")):
        assert HeldBody(budget, *holders).take(MAX_SMALL_BODY_BYTES + 1) is not None


def test_small_bodies_find_room_when_there_is_none_for_large_ones(budget: BodyBudget) -> None:
    for number in range(SHARES):
        assert HeldBody(budget, str(number)).take(LARGE // SHARES) is None
    assert HeldBody(budget, "anna").take(MAX_SMALL_BODY_BYTES + 1) is SERVICE_BUSY
    assert HeldBody(budget, "anna").take(MAX_SMALL_BODY_BYTES) is None
    assert HeldBody(budget, "1").take(MAX_SMALL_BODY_BYTES) is None


def test_a_body_that_grows_leaves_the_reserve_for_small_ones(budget: BodyBudget) -> None:
    growing = [HeldBody(budget, "anna") for _ in range(4)]
    for body in growing:
        assert body.take(MAX_SMALL_BODY_BYTES) is None
    assert HeldBody(budget, "anna").take(1) is BODY_TOO_MANY_UNFINISHED
    for body in growing:
        assert body.take(1) is None
    assert HeldBody(budget, "anna").take(1) is None


def test_a_body_that_stays_leaves_the_reserve_too(budget: BodyBudget) -> None:
    waiting = [HeldBody(budget, "anna") for _ in range(8)]
    for body in waiting:
        assert body.take(MAX_SMALL_BODY_BYTES) is None
        assert body.keep() is None
    another = HeldBody(budget, "anna")
    assert another.take(1) is None
    assert another.keep() is BODY_TOO_MANY_UNFINISHED
    waiting[0].release()
    assert another.keep() is None


def test_unfinished_bodies_are_counted_however_small(
    budget: BodyBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_budgets, "MAX_UNFINISHED_BODIES", 2)
    begun = [HeldBody(budget, "anna") for _ in range(2)]
    assert [body.begin() for body in begun] == [None, None]
    assert HeldBody(budget, "anna").begin() is BODY_TOO_MANY_UNFINISHED
    assert HeldBody(budget, "bert").begin() is None
    begun[0].end()
    assert HeldBody(budget, "anna").begin() is None


@given(some.lists(some.tuples(some.integers(0, 3), some.integers(0, 2 * MAX_SMALL_BODY_BYTES))))
def test_all_that_was_taken_is_given_back(pieces: list[tuple[int, int]]) -> None:
    budget = BodyBudget()
    bodies = [HeldBody(budget, f"address {number % 2}", f"{number}") for number in range(4)]
    for number, count in pieces:
        bodies[number].take(count)
    for body in bodies:
        body.release()
        body.end()
    fresh = HeldBody(budget, "address 0", "0")
    assert fresh.take(body_budgets.MAX_HELD_LARGE_BODY_BYTES // SHARES) is None
