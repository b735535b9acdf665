"""Pages of the ledger, and that what is in it stays."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import psycopg2
import pytest

from services.credits.ledger import MAX_ENTRIES_LOOKED_AT
from tests.contract.credits import LEDGER, consume, grant
from tests.contract.replies import data, problem
from tests.stack import Owner, Stack


def fill(stack: Stack, owner: Owner, count: int) -> None:
    stack.query(
        "SELECT e.id FROM generate_series(1, %s) AS n CROSS JOIN LATERAL credit_append("
        "%s, 'grant', 1, 1, 'operator', n::text, NULL, NULL, NULL, NULL) AS e",
        count,
        owner.user_id,
    )


def page(client: httpx2.Client, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = data(client.get(LEDGER, params=query))
    return found


def places(found: dict[str, Any]) -> list[int]:
    return [each["seq"] for each in found["items"]]


def test_sixteen_are_answered_newest_first(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    fill(stack, owner, 20)
    first = page(client)
    assert places(first) == list(range(20, 4, -1))


@contextmanager
def days_ago(stack: Stack, owner: Owner, first: int, last: int, days: int) -> Iterator[None]:
    """These entries are so many days old, past the trigger that keeps entries.

    Afterwards they are as they were, and their hashes fit again: other tests verify this ledger.
    """

    def move(hours: int) -> None:
        stack.query(
            "SET session_replication_role = replica; UPDATE credit_entries"
            " SET created_at = created_at - make_interval(hours => %s)"
            " WHERE user_id = %s AND seq BETWEEN %s AND %s",
            hours,
            owner.user_id,
            first,
            last,
        )

    move(24 * days)
    yield
    move(-24 * days)


def walked(client: httpx2.Client, **query: Any) -> tuple[list[int], int]:
    """The numbers of all entries that the query finds, and how many pages that took."""
    seen: list[int] = []
    cursor: dict[str, str] = {}
    for pages in range(1, 100):
        found = page(client, **query, **cursor)
        seen += places(found)
        if found["pagination"]["next_cursor"] is None:
            return seen, pages
        cursor = {"cursor": found["pagination"]["next_cursor"]}
    raise AssertionError("no end")


def test_entries_of_some_actions_are_found_however_many_lie_between(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    grant(stack, owner.user_id, "10")
    data(consume(client))
    for _ in range(20):
        fill(stack, owner, MAX_ENTRIES_LOOKED_AT // 10)
    data(consume(client))
    newest = 2 * MAX_ENTRIES_LOOKED_AT + 3
    first = page(client, action="consume")
    assert (places(first), first["pagination"]["next_cursor"] is None) == ([newest], False)
    assert walked(client, action="consume") == ([newest, 2], 3)
    assert walked(client, action="topup") == ([], 3)
    assert places(page(client, action=["consume", "grant"], limit=2)) == [newest, newest - 1]
    assert len(walked(client, action="grant", limit=1000)[0]) == newest - 2


def test_entries_of_some_days_are_found_with_both_days(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    today = datetime.now(UTC).date()

    def day(ago: int) -> str:
        return (today - timedelta(days=ago)).isoformat()

    assert page(client, **{"from": day(3)})["items"] == []
    fill(stack, owner, 9)
    with days_ago(stack, owner, 1, 3, 20), days_ago(stack, owner, 4, 7, 10):
        assert places(page(client, **{"from": day(10), "to": day(10)})) == [7, 6, 5, 4]
        assert places(page(client, **{"from": day(10)})) == [9, 8, 7, 6, 5, 4]
        assert places(page(client, to=day(10))) == [7, 6, 5, 4, 3, 2, 1]
        assert places(page(client, to=day(11), action="grant", limit=2)) == [3, 2]
        assert page(client, **{"from": day(9), "to": day(2)})["items"] == []
        assert page(client, to="9999-12-31", action="consume")["items"] == []
        assert walked(client, **{"from": "0001-01-01", "limit": 2})[0] == list(range(9, 0, -1))


@pytest.mark.parametrize(
    "query", [{"action": "theft"}, {"from": "soon"}, {"action": "grant", "offset": 1}]
)
def test_what_no_ledger_is_searched_for_is_400(
    client: httpx2.Client, query: dict[str, Any]
) -> None:
    problem(client.get(LEDGER, params=query), 400, "request.invalid")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE credit_entries SET amount = 5 WHERE user_id = %s",
        "DELETE FROM credit_entries WHERE user_id = %s",
        "TRUNCATE open_charges, credit_entries",
        "DELETE FROM users WHERE id = %s",
    ],
)
def test_database_refuses_to_change_what_is_in_the_ledger(
    stack: Stack, client: httpx2.Client, owner: Owner, statement: str
) -> None:
    fill(stack, owner, 2)
    before = page(client)
    with pytest.raises(psycopg2.IntegrityError):
        stack.query(statement, *([owner.user_id] if "%s" in statement else []))
    assert page(client) == before


def test_largest_balance_is_never_passed(stack: Stack, client: httpx2.Client, owner: Owner) -> None:
    from core.errors import DomainError

    grant(stack, owner.user_id, "99999999999.9999")
    with pytest.raises(DomainError, match="beyond what can be kept"):
        grant(stack, owner.user_id, "0.0001")
    assert places(page(client)) == [1]
