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
from tests.support.imports.importing import ImportRunner
from tests.support.lists.subscribers import insert_members

MEMBER_COUNT = 30_000
# A filter for which Postgres reads every member, because there is no index on members' names.
FIFTH_FILTER = {"field": "name", "contains": "fifth"}
SHORT_TIME = timedelta(milliseconds=1)


@pytest.fixture(scope="module")
def large_list(make_stack: Callable[[str], Stack]) -> tuple[Stack, int]:
    """A stack and the id of a list with 30,000 members.

    Every fifth member of the list has the name *A Fifth*.
    """
    stack = make_stack("counts")
    list_id = ImportRunner(stack).new_list(stack.create_owner())
    insert_members(stack, list_id, [f"{number}@example.com" for number in range(MEMBER_COUNT)])
    stack.query(
        "UPDATE subscriptions SET name = CASE WHEN id %% 5 = 0 THEN 'A Fifth' ELSE 'Other' END"
        " WHERE list_id = %s",
        list_id,
    )
    stack.query("ANALYZE subscriptions")
    return stack, list_id


def count_members(
    large: tuple[Stack, int], filter_: Any, within: timedelta = MAX_EXACT_TIME
) -> MemberCount:
    stack, list_id = large
    with stack.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, list_id)
        criteria = member_filter.read_filter(uow, mailing_list, filter_)
    return member_counts.count_members(stack.resources, mailing_list, criteria, within=within)


def test_member_count_is_exact_when_all_members_can_be_read_in_time(
    large_list: tuple[Stack, int],
) -> None:
    assert count_members(large_list, FIFTH_FILTER) == MemberCount(MEMBER_COUNT // 5, is_exact=True)
    assert count_members(large_list, {"not": FIFTH_FILTER}) == MemberCount(
        MEMBER_COUNT * 4 // 5, is_exact=True
    )


@pytest.mark.parametrize(
    "filter_",
    [
        {"field": "status", "is": "active"},
        {"all": [{"field": "status", "is": "active"}, {"field": "status", "is_not": "removed"}]},
    ],
)
def test_count_of_active_members_is_exact_even_without_time_to_read_them(
    large_list: tuple[Stack, int], filter_: dict[str, Any]
) -> None:
    member_count = count_members(large_list, filter_, within=SHORT_TIME)
    assert (member_count.count, member_count.is_exact) == (MEMBER_COUNT, True), filter_


@pytest.mark.parametrize("statuses", [["active"], ["active", "pending", "removed"]])
def test_member_count_that_runs_out_of_time_covers_only_the_members_read(
    large_list: tuple[Stack, int], monkeypatch: pytest.MonkeyPatch, statuses: list[str]
) -> None:
    # The time is over before the third batch.
    start = 0.0
    end = MAX_EXACT_TIME.total_seconds()
    times = iter([start, start, start, end])
    monkeypatch.setattr(member_counts, "monotonic", lambda: next(times))
    other_members_filter = {"all": [{"not": FIFTH_FILTER}, {"field": "status", "in": statuses}]}
    assert count_members(large_list, other_members_filter) == MemberCount(16_000, is_exact=False)


def test_inexact_member_count_never_exceeds_the_actual_number(
    large_list: tuple[Stack, int],
) -> None:
    """Imported members have consecutive ids, but the ids of members from a form are far apart."""
    stack, _ = large_list
    list_id = ImportRunner(stack).new_list(stack.create_owner())
    form_member_count = 300
    import_member_count = MEMBER_COUNT - form_member_count
    insert_members(
        stack, list_id, [f"skewed.{number}@example.com" for number in range(MEMBER_COUNT)]
    )
    stack.query(
        "WITH late AS (SELECT id FROM subscriptions WHERE list_id = %s ORDER BY id DESC LIMIT %s)"
        " UPDATE subscriptions AS s SET source = 'form', id = s.id * 100000 FROM late"
        " WHERE s.id = late.id",
        *(list_id, form_member_count),
    )
    by_form = {"field": "source", "is": "form"}
    for filter_, expected_count in (
        (by_form, form_member_count),
        ({"not": by_form}, import_member_count),
    ):
        assert count_members((stack, list_id), filter_) == MemberCount(
            expected_count, is_exact=True
        )
        quick_count = count_members((stack, list_id), filter_, within=SHORT_TIME)
        assert quick_count.count <= expected_count
        assert quick_count.is_exact == (quick_count.count == expected_count)


def test_page_shows_a_quick_inexact_count_with_a_link_to_the_exact_count(
    large_list: tuple[Stack, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "MAX_FIRST_COUNT_TIME", SHORT_TIME)
    stack, list_id = large_list
    with stack.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, list_id)
        criteria = member_filter.read_filter(uow, mailing_list, FIFTH_FILTER)
    form_values = {"q": "a fifth"}
    quick_count = forms.count_selection(stack.resources, mailing_list, criteria, "", form_values)
    assert (quick_count.is_exact, quick_count.recount) == (False, "?q=a+fifth&count=exactly")
    exact_count = forms.count_selection(
        stack.resources, mailing_list, criteria, EXACT_COUNT, form_values
    )
    assert (exact_count.count, exact_count.is_exact, exact_count.recount) == (
        MEMBER_COUNT // 5,
        True,
        None,
    )
