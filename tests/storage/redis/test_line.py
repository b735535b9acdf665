"""The line of request-only work: who is let in, who is refused, and what leaves it."""

import time
from collections.abc import Callable, Iterator

import pytest

from core.errors import DomainError, Kind
from storage.redis import request_work
from storage.redis.request_work import RequestWork
from storage.resources import Resources
from tests.stack import Stack

ANNA, BERT = 1, 2


@pytest.fixture(scope="module")
def resources(make_stack: Callable[[str], Stack]) -> Resources:
    return make_stack("line").resources


@pytest.fixture
def work(resources: Resources, monkeypatch: pytest.MonkeyPatch) -> Iterator[RequestWork]:
    """With bounds of a few works, and an age that a test needn't wait for."""
    monkeypatch.setattr(request_work, "MIN_WORKS_IN_LINE", 2)
    monkeypatch.setattr(request_work, "MAX_WORKS_IN_LINE", 6)
    monkeypatch.setattr(request_work, "MAX_WORKS_IN_LINE_OF_AN_OWNER", 4)
    yield RequestWork(resources.redis)
    resources.redis.flushdb()


def join(work: RequestWork, owner: int | None, request_id: str, seconds: float = 30) -> bool:
    return work.join(request_id, f"caller of {request_id}", {}, seconds, owner_id=owner)


def refusal(work: RequestWork, owner: int | None, request_id: str) -> DomainError:
    with pytest.raises(DomainError) as refused:
        join(work, owner, request_id)
    return refused.value


def fill(work: RequestWork, owner: int | None, count: int) -> None:
    for number in range(count):
        assert join(work, owner, f"{owner}-{number}")


def make_older(resources: Resources, seconds: float) -> None:
    """As if all that stands in the line had waited for so much longer."""
    for member in resources.redis.zrange("pressroom:line", 0, -1):
        assert isinstance(member, bytes)
        resources.redis.zincrby("pressroom:line", -seconds * 1000, member)


def test_owner_has_a_share_of_the_line_and_leaves_the_rest_to_others(work: RequestWork) -> None:
    fill(work, ANNA, 4)
    refused = refusal(work, ANNA, "one more")
    assert (refused.kind, refused.code) == (Kind.RATE_LIMITED, "queue.too_many_of_yours")
    assert refused.retry_after == 1
    assert join(work, BERT, "of Bert")


def test_full_line_refuses_each_new_work(work: RequestWork) -> None:
    fill(work, ANNA, 3)
    fill(work, BERT, 3)
    for owner in (ANNA, 7, None):
        refused = refusal(work, owner, "one more")
        assert (refused.kind, refused.code) == (Kind.UNAVAILABLE, "queue.overloaded")


def test_refusal_leaves_nothing_behind(work: RequestWork, resources: Resources) -> None:
    fill(work, ANNA, 4)
    before = sorted(resources.redis.keys())
    refusal(work, ANNA, "one more")
    assert sorted(resources.redis.keys()) == before


def test_line_in_which_works_wait_too_long_refuses_its_owners_for_as_long(
    work: RequestWork, resources: Resources
) -> None:
    fill(work, ANNA, 3)
    make_older(resources, 12)
    refused = refusal(work, ANNA, "one more")
    assert (refused.code, refused.retry_after) == ("queue.overloaded", 13)
    assert refusal(work, None, "without an owner").code == "queue.overloaded"
    # Who has nothing there did not fill it.
    assert join(work, BERT, "of Bert")
    make_older(resources, 12)
    assert refusal(work, 7, "of another").code == "queue.overloaded"


def test_line_of_few_works_refuses_none(work: RequestWork, resources: Resources) -> None:
    fill(work, ANNA, 1)
    make_older(resources, 25)
    assert join(work, ANNA, "one more")


def test_equal_requests_stand_in_the_line_once(work: RequestWork) -> None:
    fill(work, ANNA, 4)
    for caller in range(10):
        assert work.join(f"{ANNA}-0", f"caller {caller}", {}, 30, owner_id=BERT)


def test_caller_of_a_work_under_way_is_let_in_however_long_the_line_is(work: RequestWork) -> None:
    assert join(work, ANNA, "under way")
    assert work.take("under way", "worker") is not None
    fill(work, ANNA, 4)
    assert not join(work, ANNA, "under way")


@pytest.mark.parametrize("way", ["taken", "left", "expired", "flushed", "passed"])
def test_work_leaves_the_line(work: RequestWork, resources: Resources, way: str) -> None:
    for number in range(4):
        join(work, ANNA, f"{ANNA}-{number}", seconds=0.05 if way == "expired" else 30)
    match way:
        case "taken":
            assert work.take(f"{ANNA}-2", "worker") is not None
        case "left":
            work.leave(f"{ANNA}-2", f"caller of {ANNA}-2")
        case "expired":
            time.sleep(0.06)
        case "flushed":
            resources.redis.flushdb()
        case "passed":
            make_older(resources, 2)
            assert join(work, BERT, "of Bert")
            assert work.take("of Bert", "worker") is not None
    assert join(work, ANNA, "one more")


def test_empty_line_is_no_key(work: RequestWork, resources: Resources) -> None:
    fill(work, ANNA, 3)
    for number in range(3):
        work.leave(f"{ANNA}-{number}", f"caller of {ANNA}-{number}")
    assert resources.redis.keys() == []
