"""Tests of filters by the engagement of members, and by their answers about engagement."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import httpx2
import pytest

from core import clock
from devstack.harness.stack import Stack
from services.paging import PageRequest
from services.subscriptions import lists
from services.subscriptions.filters import member_filter, searching
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add
from tests.support.lists.engagement import INACTIVE_FOR_90_DAYS, answer, record_engagement, set_mode
from tests.support.lists.segments import new_segment
from tests.support.lists.subscribers import fetch_members, new_address

Json = dict[str, Any]
Find = Callable[..., str]

DAY_NAMES = ("last_delivered", "last_opened", "last_machine_opened", "last_clicked")


def days_ago(days: int) -> date:
    return datetime.now(UTC).date() - timedelta(days=days)


@pytest.fixture
def ids(client: httpx2.Client, list_id: int) -> dict[str, int]:
    """The user ids of the members A to E by name."""
    for name in "ABCDE":
        data(add(client, list_id, {"email": new_address(), "name": name}))
    return {item["name"]: item["user_id"] for item in fetch_members(client, list_id)}


@pytest.fixture
def find(client: httpx2.Client, list_id: int) -> Find:
    """A function that searches the list, and returns the names of all matches in one text."""

    def search(condition: Json, **options: str) -> str:
        body = {"filter": condition, **options}
        page = data(client.post(f"/lists/{list_id}/members/search", json=body))
        assert page["pagination"]["total"] == len(page["items"])
        return "".join(sorted(item["name"] for item in page["items"]))

    return search


@pytest.fixture
def _engaged(stack: Stack, list_id: int, ids: dict[str, int]) -> None:
    """A, B and C have engagement: a mailing on 1 to 3 May, or none. D and E have no row."""
    set_mode(stack, list_id, "all")
    first_day = date(2026, 5, 1)
    for number, name in enumerate("ABC"):
        day = None if number == 0 else first_day + timedelta(days=number)
        numbers = (number, number, number, number)
        measured_since = first_day + timedelta(days=number)
        record_engagement(
            stack, list_id, ids[name], measured_since, numbers=numbers, days=(day, day, day, day)
        )


@pytest.mark.usefixtures("_engaged")
@pytest.mark.parametrize("name", ["delivered", "opens", "machine_opens", "clicks"])
def test_filter_compares_numbers_of_engagement_and_a_missing_row_is_not_zero(
    find: Find, name: str
) -> None:
    for condition, expected in (
        ({"is": 0}, "A"),
        ({"is": 2}, "C"),
        ({"is": 1.5}, ""),
        ({"is_not": 0}, "BCDE"),
        ({"in": [0, 2, 1e300]}, "AC"),
        ({"at_least": 1}, "BC"),
        ({"at_least": 0.5}, "BC"),
        ({"at_most": 1}, "AB"),
        ({"at_most": 1e300}, "ABC"),
        ({"exists": True}, "ABC"),
        ({"exists": False}, "DE"),
    ):
        assert find({"field": name, **condition}) == expected, condition
    assert find({"not": {"field": name, "at_least": 1}}) == "ADE"


@pytest.mark.usefixtures("_engaged")
@pytest.mark.parametrize("name", DAY_NAMES)
def test_filter_compares_days_of_engagement_and_a_missing_day_has_no_value(
    find: Find, name: str
) -> None:
    for condition, expected in (
        ({"is": "2026-05-02"}, "B"),
        ({"is_not": "2026-05-02"}, "ACDE"),
        ({"in": ["2026-05-01", "2026-05-03"]}, "C"),
        ({"before": "2026-05-03"}, "B"),
        ({"before": "2026-05-02"}, ""),
        ({"after": "2026-05-02"}, "C"),
        ({"at_least": "2026-05-02"}, "BC"),
        ({"at_most": "2026-05-02"}, "B"),
        ({"exists": True}, "BC"),
        ({"exists": False}, "ADE"),
    ):
        assert find({"field": name, **condition}) == expected, condition


@pytest.mark.usefixtures("_engaged")
def test_filter_compares_the_first_day_of_measurement(find: Find) -> None:
    for condition, expected in (
        ({"is": "2026-05-01"}, "A"),
        ({"before": "2026-05-02"}, "A"),
        ({"at_most": "2026-05-02"}, "AB"),
        ({"after": "2026-05-02"}, "C"),
        ({"exists": False}, "DE"),
    ):
        assert find({"field": "measured_since", **condition}) == expected, condition


@pytest.mark.usefixtures("_engaged")
def test_filter_combines_engagement_with_other_conditions(find: Find) -> None:
    opened = {"field": "opens", "at_least": 1}
    clicked_twice = {"field": "clicks", "at_least": 2}
    named_d = {"field": "name", "is": "D"}
    assert find({"all": [opened, {"not": clicked_twice}]}) == "B"
    assert find({"any": [clicked_twice, named_d, {"field": "opens", "is": 0}]}) == "ACD"
    assert find({"all": [{"not": named_d}, {"not": opened}]}) == "AE"
    assert find({"not": {"any": [named_d, opened]}}) == "AE"


@pytest.mark.usefixtures("_engaged")
def test_filter_hides_engagement_that_the_list_may_no_longer_record(
    stack: Stack, list_id: int, ids: dict[str, int], find: Find
) -> None:
    """Maintenance deletes the rows of such members only within an hour."""
    recorded = {"field": "opens", "exists": True}
    not_opened = {"not": {"field": "opens", "at_least": 1}}
    answer(stack, list_id, ids["A"], is_allowed=True)
    answer(stack, list_id, ids["B"], is_allowed=False)
    for mode, expected, expected_without in (
        ("all", "AC", "ABDE"),
        ("consent", "A", "ABCDE"),
        ("off", "", "ABCDE"),
    ):
        set_mode(stack, list_id, mode)
        assert find(recorded) == expected, mode
        assert find(not_opened) == expected_without, mode


@pytest.mark.usefixtures("_engaged")
def test_filter_by_engagement_finds_only_active_members(
    stack: Stack, client: httpx2.Client, list_id: int, ids: dict[str, int], find: Find
) -> None:
    data(client.delete(f"/subscriptions/{list_id}/members/{ids['C']}"))
    # Pretend that the row of the former member is still in the database.
    record_engagement(stack, list_id, ids["C"], date(2026, 5, 1), numbers=(9, 9, 9, 9))
    nine_opens = {"field": "opens", "is": 9}
    any_status = {"field": "status", "in": ["active", "removed"]}
    assert find(nine_opens) == ""
    assert find(nine_opens, status="removed") == ""
    assert find({"all": [any_status, nine_opens]}) == ""
    assert find({"field": "opens", "is_not": 9}) == "ABDE"
    assert find({"all": [any_status, {"field": "opens", "is_not": 9}]}) == "ABCDE"


def test_filter_by_the_answer_finds_members_in_every_mode(
    stack: Stack, list_id: int, ids: dict[str, int], find: Find
) -> None:
    answer(stack, list_id, ids["A"], is_allowed=True)
    answer(stack, list_id, ids["B"], is_allowed=False)
    for mode in ("off", "consent", "all"):
        set_mode(stack, list_id, mode)
        for condition, expected in (
            ({"is": "yes"}, "A"),
            ({"is": "no"}, "B"),
            ({"is": "none"}, "CDE"),
            ({"is_not": "yes"}, "BCDE"),
            ({"is_not": "none"}, "AB"),
            ({"in": ["yes", "none"]}, "ACDE"),
        ):
            assert find({"field": "engagement_choice", **condition}) == expected, (mode, condition)


@pytest.mark.parametrize(
    ("condition", "place"),
    [
        ({"field": "opens", "is": "1"}, "filter.is"),
        ({"field": "opens", "before": 1}, "filter.before"),
        ({"field": "last_opened", "is": "2026-05-01T10:00:00Z"}, "filter.is"),
        ({"field": "last_opened", "in": [{"days_ago": 1}]}, "filter.in[0]"),
        ({"field": "last_opened", "contains": "2026"}, "filter.contains"),
        ({"field": "engagement_choice", "is": "maybe"}, "filter.is"),
        ({"field": "engagement_choice", "exists": True}, "filter.exists"),
    ],
)
def test_filter_by_engagement_rejects_other_operators_and_values(
    client: httpx2.Client, list_id: int, condition: Json, place: str
) -> None:
    reply = client.post(f"/lists/{list_id}/members/search", json={"filter": condition})
    [error] = problem(reply, 400, "filter.invalid")["errors"]
    assert error["field"] == place


def test_inactive_members_are_measured_for_90_days_and_nothing_shows_that_they_read(
    stack: Stack, list_id: int, ids: dict[str, int], find: Find
) -> None:
    set_mode(stack, list_id, "all")
    # Nobody is inactive on the day after the list turned engagement on.
    for name in "AB":
        record_engagement(
            stack,
            list_id,
            ids[name],
            days_ago(1),
            numbers=(3, 0, 0, 0),
            days=(days_ago(0), None, None, None),
        )
    assert find(INACTIVE_FOR_90_DAYS) == ""
    stack.query("DELETE FROM member_engagement WHERE list_id = %s", list_id)
    yesterday, long_ago = days_ago(1), days_ago(91)
    for name, deliveries, last_days in (
        ("A", 3, (yesterday, None, None, None)),
        # A machine opened the mail, or the person may use Apple's program.
        ("B", 3, (yesterday, None, yesterday, None)),
        ("C", 2, (yesterday, None, None, None)),
        ("D", 3, (long_ago, None, None, None)),
        ("E", 3, (yesterday, long_ago, long_ago, long_ago)),
    ):
        record_engagement(
            stack, list_id, ids[name], long_ago, numbers=(deliveries, 0, 0, 0), days=last_days
        )
    assert find(INACTIVE_FOR_90_DAYS) == "AE"
    stack.query(
        "UPDATE member_engagement SET last_opened = %s WHERE user_id = %s", yesterday, ids["A"]
    )
    stack.query(
        "UPDATE member_engagement SET last_clicked = %s WHERE user_id = %s", yesterday, ids["E"]
    )
    assert find(INACTIVE_FOR_90_DAYS) == ""


def test_segment_counts_days_since_the_last_open_from_the_day_on_which_it_is_used(
    stack: Stack,
    client: httpx2.Client,
    list_id: int,
    ids: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_mode(stack, list_id, "all")
    days = (None, days_ago(90), None, None)
    record_engagement(stack, list_id, ids["A"], days_ago(100), days=days)
    condition = {"field": "last_opened", "before": {"days_ago": 90}}
    segment = new_segment(client, list_id, condition)
    assert (segment["filter"], segment["count"]) == (condition, 0)
    now = clock.now()
    for days_later, expected in ((0, []), (1, [ids["A"]])):
        monkeypatch.setattr(clock, "now", lambda days=days_later: now + timedelta(days=days))
        with stack.resources.unit_of_work() as uow:
            mailing_list = lists.get_list(uow, list_id)
            criteria = member_filter.read_filter(uow, mailing_list, condition)
            page = searching.search_members(uow, list_id, criteria, PageRequest(10))
            assert [row["user_id"] for row in page.page.rows] == expected
