"""Tests of filters with days in the future, anniversaries and the end of the paid tier."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import httpx2
import pytest

from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add
from tests.support.lists.segments import new_field, new_segment, set_member
from tests.support.lists.subscribers import fetch_members, new_address

Json = dict[str, Any]
Find = Callable[..., str]


def day_after(days: int) -> date:
    """Return the day after this number of days, in UTC."""
    return datetime.now(UTC).date() + timedelta(days=days)


@pytest.fixture
def emails(client: httpx2.Client, list_id: int) -> dict[str, str]:
    """The addresses of the members A to E by name."""
    for name in "ABCDE":
        data(add(client, list_id, {"email": new_address(), "name": name}))
    return {item["name"]: item["email"] for item in fetch_members(client, list_id)}


@pytest.fixture
def find_names(client: httpx2.Client, list_id: int) -> Find:
    """A function that searches the list, and returns the names of all matches in one text."""

    def search(field: str, **condition: Any) -> str:
        body = {"filter": {"field": field, **condition}}
        page = data(client.post(f"/lists/{list_id}/members/search", json=body))
        return "".join(sorted(item["name"] for item in page["items"]))

    return search


def test_filter_by_paid_expiry_compares_the_time_that_the_subscription_shows(
    client: httpx2.Client, list_id: int, emails: dict[str, str], find_names: Find
) -> None:
    expiries = {
        "B": f"{day_after(-1)}T12:00:00Z",
        "C": f"{day_after(7)}T23:59:59.999999Z",
        "D": f"{day_after(8)}T00:00:00Z",
    }
    for name, expiry in expiries.items():
        member = set_member(client, list_id, emails[name], type="gold", paid_expiry=expiry)
        assert find_names("paid_expiry", **{"is": member["paid_expiry"]}) == name
    # The tier of E never expires.
    assert set_member(client, list_id, emails["E"], type="gold")["paid_expiry"] is None
    for condition, expected in (
        ({"exists": True}, "BCD"),
        ({"exists": False}, "AE"),
        ({"at_most": {"days_ago": -7}}, "BC"),
        ({"after": {"days_ago": -7}}, "D"),
        ({"at_least": {"days_ago": -7}}, "CD"),
        ({"before": {"days_ago": 0}}, "B"),
        ({"is": {"days_ago": -8}}, "D"),
        ({"is_not": {"days_ago": -8}}, "ABCE"),
        ({"is": expiries["C"]}, "C"),
        ({"after": expiries["C"]}, "D"),
    ):
        assert find_names("paid_expiry", **condition) == expected, condition


def test_days_ago_accepts_negative_numbers_for_dates_in_the_future(
    client: httpx2.Client, list_id: int, emails: dict[str, str], find_names: Find
) -> None:
    new_field(client, "renewal", "date")
    for name, days in zip("ABCD", (-3650, -1, 1, 3650), strict=True):
        set_member(client, list_id, emails[name], fields={"renewal": str(day_after(days))})
    for condition, expected in (
        ({"is": {"days_ago": -3650}}, "D"),
        ({"is": {"days_ago": 3650}}, "A"),
        ({"is": {"days_ago": -1}}, "C"),
        ({"is": {"days_ago": 1}}, "B"),
        ({"at_most": {"days_ago": -1}}, "ABC"),
        ({"after": {"days_ago": -1}}, "D"),
    ):
        assert find_names("fields.renewal", **condition) == expected, condition
    assert find_names("joined_at", before={"days_ago": -1}) == "ABCDE"
    assert find_names("joined_at", after={"days_ago": -1}) == ""


def test_segments_searches_and_bulk_actions_find_the_same_anniversaries(
    client: httpx2.Client, list_id: int, emails: dict[str, str], find_names: Find
) -> None:
    new_field(client, "birthday", "date")
    in_a_week = day_after(7)
    # Choose a year in which every month and day exists.
    birthdays = (
        date(1984, in_a_week.month, in_a_week.day),
        date(1984, day_after(6).month, day_after(6).day),
        in_a_week,
    )
    for name, birthday in zip("ABC", birthdays, strict=True):
        set_member(client, list_id, emails[name], fields={"birthday": str(birthday)})
    condition = {"field": "fields.birthday", "anniversary": 7}
    assert find_names(**condition) == "A"
    assert find_names("fields.birthday", anniversary=6) == "B"
    segment = new_segment(client, list_id, condition)
    assert (segment["filter"], segment["count"]) == (condition, 1)
    dry_run = client.post(
        f"/lists/{list_id}/members/bulk",
        params={"dry_run": 1},
        json={"action": "tag", "value": "cake", "filter": {"not": condition}},
    )
    assert data(dry_run) == {"matched": 4, "is_exact": True}
    # All members joined today, so that the first anniversary is in a year.
    assert find_names("joined_at", anniversary=0) == find_names("created_at", anniversary=0) == ""


@pytest.mark.parametrize(
    ("condition", "rule"),
    [
        *(
            ({"field": "paid_expiry", "at_most": {"days_ago": value}}, "-3650 to 3650 days ago")
            for value in (-3651, 3651, 1.5, True, "7", None)
        ),
        *(
            ({"field": "joined_at", "anniversary": value}, "whole number of days from -60 to 60")
            for value in (-61, 61, 1.5, 1.0, True, "7", None)
        ),
        ({"field": "paid_expiry", "anniversary": 0}, "must be one of is, is_not, before"),
        ({"field": "updated_at", "anniversary": 0}, "must be one of is, is_not, before"),
    ],
)
def test_filter_rejects_other_numbers_of_days(
    client: httpx2.Client, list_id: int, condition: Json, rule: str
) -> None:
    reply = client.post(f"/lists/{list_id}/members/search", json={"filter": condition})
    [error] = problem(reply, 400, "filter.invalid")["errors"]
    _, operator = condition
    assert error["field"] == f"filter.{operator}"
    assert rule in error["message"]
