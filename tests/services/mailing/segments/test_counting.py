"""How many members a filter means, in a list of any size."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from api.console.of_members import shown_counts
from api.console.of_members.shown_counts import EXACTLY
from services.mailing import lists
from services.mailing.filters import member_filter
from services.mailing.segments import counting
from services.mailing.segments.counting import MAX_EXACT_TIME, MemberCount
from tests.contract.subscribers import fill
from tests.importing import Importing
from tests.stack import Stack

MEMBERS = 30_000
# Not by an index: each member is looked at.
A_FIFTH = {"field": "name", "contains": "fifth"}
BRIEFLY = timedelta(milliseconds=1)


@pytest.fixture(scope="module")
def large(make_stack: Callable[[str], Stack]) -> tuple[Stack, int]:
    """A list of many members, every fifth of whom has the name."""
    stack = make_stack("counts")
    list_id = Importing(stack).new_list(stack.new_owner())
    fill(stack, list_id, [f"{number}@example.com" for number in range(MEMBERS)])
    stack.query(
        "UPDATE subscriptions SET name = CASE WHEN id %% 5 = 0 THEN 'A Fifth' ELSE 'Other' END"
        " WHERE list_id = %s",
        list_id,
    )
    stack.query("ANALYZE subscriptions")
    return stack, list_id


def counted(
    large: tuple[Stack, int], written: Any, within: timedelta = MAX_EXACT_TIME
) -> MemberCount:
    stack, list_id = large
    with stack.resources.unit_of_work() as uow:
        mailing_list = lists.get(uow, list_id)
        wanted = member_filter.read(uow, mailing_list, written)
    return counting.count(stack.resources, mailing_list, wanted, within=within)


def test_a_count_is_exact_where_all_can_be_looked_at(large: tuple[Stack, int]) -> None:
    assert counted(large, A_FIFTH) == MemberCount(MEMBERS // 5, is_exact=True)
    assert counted(large, {"not": A_FIFTH}) == MemberCount(MEMBERS * 4 // 5, is_exact=True)


def test_all_active_members_are_known_exactly_however_little_time_there_is(
    large: tuple[Stack, int],
) -> None:
    for written in (
        {"field": "status", "is": "active"},
        {"all": [{"field": "status", "is": "active"}, {"field": "status", "is_not": "removed"}]},
    ):
        found = counted(large, written, within=BRIEFLY)
        assert (found.count, found.is_exact) == (MEMBERS, True), written


def test_a_count_that_takes_too_long_is_an_estimate_of_active_members(
    large: tuple[Stack, int],
) -> None:
    found = counted(large, A_FIFTH, within=BRIEFLY)
    assert not found.is_exact
    assert found.count == pytest.approx(MEMBERS / 5, rel=0.1)
    named = {"all": [A_FIFTH, {"field": "status", "in": ["active", "removed"]}]}
    assert counted(large, named, within=BRIEFLY) == MemberCount(None, is_exact=False)


def test_a_page_tells_a_number_at_once_and_how_to_get_the_exact_one(
    large: tuple[Stack, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_counts, "AT_ONCE", BRIEFLY)
    stack, list_id = large
    with stack.resources.unit_of_work() as uow:
        mailing_list = lists.get(uow, list_id)
        wanted = member_filter.read(uow, mailing_list, A_FIFTH)
    chosen = {"q": "a fifth"}
    at_once = shown_counts.shown_count(stack.resources, mailing_list, wanted, "", chosen)
    assert (at_once.is_exact, at_once.recount) == (False, "?q=a+fifth&count=exactly")
    exact = shown_counts.shown_count(stack.resources, mailing_list, wanted, EXACTLY, chosen)
    assert (exact.count, exact.is_exact, exact.recount) == (MEMBERS // 5, True, None)
