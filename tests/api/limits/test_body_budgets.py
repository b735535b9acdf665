"""Each holder has a share of the memory for bodies, and small bodies a reserve of their own."""

import pytest

from api.limits import body_budgets
from api.limits.body_budgets import MAX_SMALL_BODY_BYTES, SHARES, BodyBudget, HeldBody
from core.errors.requests import BODY_TOO_MANY_UNFINISHED, SERVICE_BUSY

LARGE, SMALL = 8 * SHARES * MAX_SMALL_BODY_BYTES, 4 * SHARES * MAX_SMALL_BODY_BYTES


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> BodyBudget:
    """A share is eight of the largest small bodies, and four of them in the reserve for those."""
    monkeypatch.setattr(body_budgets, "MAX_HELD_LARGE_BODY_BYTES", LARGE)
    monkeypatch.setattr(body_budgets, "MAX_HELD_SMALL_BODY_BYTES", SMALL)
    return BodyBudget()


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
