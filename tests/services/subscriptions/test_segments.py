from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from api.console.members import forms
from api.console.members.forms import EXACT_COUNT
from devstack.harness.stack import Stack
from services.subscriptions import lists
from services.subscriptions.filters import member_counts, member_filter
from services.subscriptions.filters.member_counts import MAX_EXACT_TIME, MemberCount
from tests.support.imports.importing import Importing
from tests.support.lists.subscribers import fill

MEMBERS = 30_000
# A filter on names, for which the database has no index and reads every member.
A_FIFTH = {"field": "name", "contains": "fifth"}
BRIEFLY = timedelta(milliseconds=1)


@pytest.fixture(scope="module")
def large_list(make_stack: Callable[[str], Stack]) -> tuple[Stack, int]:
    """A stack and the id of a list with 30,000 members.

    Every fifth member of the list has the name *A Fifth*.
    """
    stack = make_stack("counts")
    list_id = Importing(stack).new_list(stack.create_owner())
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
        mailing_list = lists.get_list(uow, list_id)
        wanted = member_filter.read_filter(uow, mailing_list, written)
    return member_counts.count_members(stack.resources, mailing_list, wanted, within=within)


def test_member_count_is_exact_when_all_members_can_be_read_in_time(
    large_list: tuple[Stack, int],
) -> None:
    assert counted(large_list, A_FIFTH) == MemberCount(MEMBERS // 5, is_exact=True)
    assert counted(large_list, {"not": A_FIFTH}) == MemberCount(MEMBERS * 4 // 5, is_exact=True)


def test_count_of_active_members_is_exact_even_without_time_to_read_them(
    large_list: tuple[Stack, int],
) -> None:
    for written in (
        {"field": "status", "is": "active"},
        {"all": [{"field": "status", "is": "active"}, {"field": "status", "is_not": "removed"}]},
    ):
        found = counted(large_list, written, within=BRIEFLY)
        assert (found.count, found.is_exact) == (MEMBERS, True), written


@pytest.mark.parametrize("statuses", [["active"], ["active", "pending", "removed"]])
def test_member_count_that_runs_out_of_time_covers_only_the_members_read(
    large_list: tuple[Stack, int], monkeypatch: pytest.MonkeyPatch, statuses: list[str]
) -> None:
    # The time is over before the third batch.
    begin, over = 0.0, MAX_EXACT_TIME.total_seconds()
    times = iter([begin, begin, begin, over])
    monkeypatch.setattr(member_counts, "monotonic", lambda: next(times))
    others = {"all": [{"not": A_FIFTH}, {"field": "status", "in": statuses}]}
    assert counted(large_list, others) == MemberCount(16_000, is_exact=False)


def test_inexact_member_count_never_exceeds_the_actual_number(
    large_list: tuple[Stack, int],
) -> None:
    """Most came in one import, and the ids of the others lie far apart."""
    stack, _ = large_list
    list_id, joined = Importing(stack).new_list(stack.create_owner()), 300
    others = MEMBERS - joined
    fill(stack, list_id, [f"skewed.{number}@example.com" for number in range(MEMBERS)])
    stack.query(
        "WITH late AS (SELECT id FROM subscriptions WHERE list_id = %s ORDER BY id DESC LIMIT %s)"
        " UPDATE subscriptions AS s SET source = 'form', id = s.id * 100000 FROM late"
        " WHERE s.id = late.id",
        *(list_id, joined),
    )
    by_form = {"field": "source", "is": "form"}
    for written, there in ((by_form, joined), ({"not": by_form}, others)):
        assert counted((stack, list_id), written) == MemberCount(there, is_exact=True)
        briefly = counted((stack, list_id), written, within=BRIEFLY)
        assert briefly.count <= there
        assert briefly.is_exact == (briefly.count == there)


def test_page_shows_a_quick_inexact_count_with_a_link_to_the_exact_count(
    large_list: tuple[Stack, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "MAX_FIRST_COUNT_TIME", BRIEFLY)
    stack, list_id = large_list
    with stack.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, list_id)
        wanted = member_filter.read_filter(uow, mailing_list, A_FIFTH)
    chosen = {"q": "a fifth"}
    at_once = forms.count_selection(stack.resources, mailing_list, wanted, "", chosen)
    assert (at_once.is_exact, at_once.recount) == (False, "?q=a+fifth&count=exactly")
    exact = forms.count_selection(stack.resources, mailing_list, wanted, EXACT_COUNT, chosen)
    assert (exact.count, exact.is_exact, exact.recount) == (MEMBERS // 5, True, None)
