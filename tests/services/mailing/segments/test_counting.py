"""How many members a filter means, in a list of any size."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from services.mailing import lists
from services.mailing.filters import member_filter
from services.mailing.segments import counting
from services.mailing.segments.counting import MemberCount
from tests.contract.subscribers import fill
from tests.importing import Importing
from tests.stack import Stack

MEMBERS = 30_000
# Not by an index: each member is looked at.
A_FIFTH = {"field": "name", "contains": "fifth"}


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


def counted(large: tuple[Stack, int], written: Any) -> MemberCount:
    stack, list_id = large
    with stack.resources.unit_of_work() as uow:
        mailing_list = lists.get(uow, list_id)
        wanted = member_filter.read(uow, mailing_list, written)
    return counting.count(stack.resources, mailing_list, wanted)


def test_a_count_is_exact_where_all_can_be_looked_at(large: tuple[Stack, int]) -> None:
    assert counted(large, A_FIFTH) == MemberCount(MEMBERS // 5, is_exact=True)
    assert counted(large, {"not": A_FIFTH}) == MemberCount(MEMBERS * 4 // 5, is_exact=True)


def test_a_count_that_takes_too_long_is_an_estimate_of_active_members(
    large: tuple[Stack, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "MAX_EXACT_TIME", timedelta(milliseconds=1))
    found = counted(large, A_FIFTH)
    assert not found.is_exact
    assert found.count == pytest.approx(MEMBERS / 5, rel=0.1)
    named = {"all": [A_FIFTH, {"field": "status", "in": ["active", "removed"]}]}
    assert counted(large, named) == MemberCount(None, is_exact=False)
