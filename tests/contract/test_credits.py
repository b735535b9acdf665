"""Tests of credit balances, charges, ledger pages and the immutability of ledger entries."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx2
import psycopg2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.scopes import Scope
from devstack.harness.stack import Owner, Stack
from services.credits.ledger_pages import MAX_SCANNED_ENTRIES
from tests.support.credits import credits
from tests.support.credits.credits import BALANCE, CONSUME, LEDGER, balance, consume, grant
from tests.support.http.replies import TIMESTAMP, data, problem
from tests.support.people.erasure import erase


def test_first_balance_request_opens_an_empty_credit_account(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    count = "SELECT count(*) FROM credit_accounts WHERE user_id = %s"
    assert stack.query(count, owner.user_id) == [(0,)]
    account = data(client.get(BALANCE))
    assert account == {
        "id": account["id"],
        "user_id": owner.user_id,
        "balance_credit": 0,
        "debt_credit": 0,
        "status": "active",
        "created_at": account["created_at"],
        "updated_at": account["created_at"],
    }
    assert TIMESTAMP.fullmatch(account["created_at"])
    assert data(client.get(BALANCE)) == account
    assert stack.query(count, owner.user_id) == [(1,)]


def test_credit_charge_returns_its_ledger_entry_and_reduces_the_balance(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    granted = grant(stack, owner.user_id, "100")
    body = {"amount_credit": 0.5, "source_id": "post-1", "meta": {"a": [1, None, "ü"]}}
    entry = data(client.post(CONSUME, json=body))
    assert TIMESTAMP.fullmatch(entry["created_at"])
    assert entry == {
        "id": entry["id"],
        "seq": 2,
        "user_id": owner.user_id,
        "order_id": None,
        "action": "consume",
        "amount_credit": 0.5,
        "delta_credit": -0.5,
        "balance_after": 99.5,
        "rate_usd_to_credit": None,
        "currency": None,
        "source_type": "consume",
        "source_id": "post-1",
        "meta": {"a": [1, None, "ü"]},
        "created_at": entry["created_at"],
    }
    assert credits.entries(client)[0] == entry
    assert credits.entries(client)[1]["id"] == granted["id"]
    assert balance(client) == Decimal("99.5")
    assert data(client.get(BALANCE))["updated_at"] == entry["created_at"]


@pytest.mark.parametrize("change", ["revoked_at = now()", "expires_at = now()"])
def test_revoked_or_expired_api_key_charges_no_credits(
    stack: Stack, client: httpx2.Client, owner: Owner, change: str
) -> None:
    grant(stack, owner.user_id, "10")
    with stack.client(stack.create_key(owner.user_id)) as key_client:
        data(consume(key_client))
        key_id = "(SELECT max(id) FROM api_keys WHERE user_id = %s)"
        stack.query(f"UPDATE api_keys SET {change} WHERE id = {key_id} RETURNING 1", owner.user_id)
        problem(consume(key_client), 401, "auth.invalid_credentials")
        problem(consume(key_client, key="k" * 16), 401, "auth.invalid_credentials")
    assert balance(client) == 9


def test_cached_api_key_without_the_credit_scope_charges_no_credits(
    stack: Stack, owner: Owner
) -> None:
    grant(stack, owner.user_id, "10")
    with stack.client(stack.create_key(owner.user_id, Scope.CREDIT_READ)) as reader:
        assert balance(reader) == 10
        problem(consume(reader), 403, "auth.insufficient_scope")
        assert balance(reader) == 10


def test_credit_charge_above_the_balance_is_rejected_and_changes_nothing(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    problem(consume(client, "0.0001"), 402, "credits.insufficient")
    assert stack.query("SELECT 1 FROM credit_accounts WHERE user_id = %s", owner.user_id) == []
    grant(stack, owner.user_id, "5")
    account_before = data(client.get(BALANCE))
    reply = consume(client, "99999999999.9999")
    problem(reply, 402, "credits.insufficient")
    exact = credits.parse_exactly(reply.text)
    assert (exact["balance_credit"], exact["needed"]) == (5, Decimal("99999999999.9999"))
    problem(consume(client, "5.0001", key="k" * 16), 402, "credits.insufficient")
    assert data(client.get(BALANCE)) == account_before
    assert len(credits.entries(client)) == 1
    assert data(consume(client, "5"))["balance_after"] == 0


@pytest.mark.parametrize(
    "amount",
    [
        "0",
        "-1",
        "-0.0",
        "0.00001",
        "1.00001",
        "1e-5",
        "99999999999.99991",
        "100000000000",
        "1e11",
        "1e400",
        "1e1000000",
        "1e99999999999999999999",
        "1e-2000000",
        "1e-99999999999999999999",
        "1" * 5000,
        "0." + "0" * 5000 + "1",
    ],
)
def test_credit_charge_rejects_amounts_that_are_not_positive_or_not_storable(
    client: httpx2.Client, amount: str
) -> None:
    problem(consume(client, amount), 422, "credits.amount")


def test_credit_charge_names_each_missing_or_malformed_field(client: httpx2.Client) -> None:
    for amount in ['"1"', "true", "null", "[1]", '{"n": 1}', '"NaN"']:
        error = problem(consume(client, amount), 422, "body.invalid")
        assert [each["field"] for each in error["errors"]] == ["body.amount_credit"]
    for other_fields, code, field in [
        ("", "body.invalid", "body.source_id"),
        (', "source_id": 7', "body.invalid", "body.source_id"),
        (r', "source_id": "a\u0000"', "body.invalid", "body.source_id"),
        (r', "source_id": "\ud800"', "body.invalid", "body.source_id"),
        (r', "source_id": " \t "', "credits.source_id", "body.source_id"),
        (f', "source_id": "{"x" * 256}"', "credits.source_id", "body.source_id"),
        (', "source_id": "x", "meta": []', "body.invalid", "body.meta"),
        (r', "source_id": "x", "meta": {"a": "\u0000"}', "credits.meta", "body.meta"),
    ]:
        error = problem(credits.send(client, f'{{"amount_credit": 1{other_fields}}}'), 422, code)
        assert [each["field"] for each in error["errors"]] == [field]


def test_credit_charge_rejects_a_body_that_is_not_json(client: httpx2.Client) -> None:
    cases: list[str | bytes] = ["", "{", "{]", "{'a': 1}", "[" * 10_000, b"\xff{}"]
    for body in cases:
        problem(credits.send(client, body), 400, "body.not_json")
    for amount in ["NaN", "-Infinity", "01", "1.", "+1", "0x1", ""]:
        problem(consume(client, amount), 400, "body.not_json")


def test_credit_charge_accepts_the_longest_source_id_and_ignores_unknown_fields(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    grant(stack, owner.user_id, "1")
    body = {"amount_credit": 1, "source_id": "ü" * 255, "colour": {}, "meta": None}
    entry = data(client.post(CONSUME, params={"colour": "x"}, json=body))
    assert (entry["source_id"], entry["meta"]) == ("ü" * 255, None)


def charge_with_meta(client: httpx2.Client, meta: str) -> httpx2.Response:
    return credits.send(client, f'{{"amount_credit": 1, "source_id": "m", "meta": {meta}}}')


@pytest.mark.parametrize(
    "meta",
    [
        json.dumps({"a": "x" * 8185}),
        r'{"a": "\u0000"}',
        r'{"a\u0000": 1}',
        r'{"a": "\\\u0000"}',
        r'{"a": "\ud800"}',
        '{"a": 1e400}',
        '{"a": ' + "9" * 5000 + "}",
        '{"a": [' + ",".join(["1e300"] * 30) + "]}",
        '{"a": ' + "[" * 300 + "]" * 300 + "}",
    ],
)
def test_credit_charge_rejects_meta_that_cannot_be_stored(client: httpx2.Client, meta: str) -> None:
    problem(charge_with_meta(client, meta), 422, "credits.meta")


@pytest.mark.parametrize(
    "meta",
    [
        "{}",
        json.dumps({"a": "x" * 8184}),
        r'{"a": "\\u0000"}',
        '{"a": 1e22, "b": 100000000000000000000}',
        '{"a": 1.5, "b": 1e20, "c": -9007199254740993, "d": 18446744073709551615, "e": 1e-7}',
        '{"": [[], {}, null, false, "\U0001f600"]}',
    ],
)
def test_credit_charge_returns_meta_exactly_as_sent(
    stack: Stack, client: httpx2.Client, owner: Owner, meta: str
) -> None:
    grant(stack, owner.user_id, "1")
    assert data(charge_with_meta(client, meta))["meta"] == json.loads(meta)
    assert credits.entries(client)[0]["meta"] == json.loads(meta)


def test_erasure_keeps_the_ledger_of_a_user_without_name_and_address(stack: Stack) -> None:
    person = stack.create_owner()
    grant(stack, person.user_id, "7")
    erase(stack.resources, person.email)
    rows: list[tuple[Any, ...]] = stack.query(
        "SELECT to_jsonb(e)::text, to_jsonb(a)::text, a.balance, u.email, u.name"
        " FROM credit_entries e JOIN credit_accounts a USING (user_id)"
        " JOIN users u ON u.id = user_id WHERE user_id = %s",
        person.user_id,
    )
    [(entry, account, balance_left, email, name)] = rows
    assert (balance_left, name) == (7, None)
    assert person.email not in entry + account + email


def _format_amount(units: int, form: int) -> str:
    """Write an amount of credits as a JSON number, in one of three notations.

    ``units``: the amount in ten-thousandths of a credit. ``form``: the number of the notation. The
    amount 1.5 is ``1.5000`` in notation 0, ``1.5`` in notation 1, and ``15000e-4`` in notation 2.
    """
    amount = Decimal(units).scaleb(-4)
    return (f"{amount:.4f}", format(amount.normalize(), "f"), f"{units}e-4")[form]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(units=st.integers(1, 10**15 - 1), form=st.integers(0, 2))
def test_credit_charge_returns_any_amount_exactly(
    stack: Stack, client: httpx2.Client, owner: Owner, units: int, form: int
) -> None:
    amount = Decimal(units).scaleb(-4)
    text = _format_amount(units, form)
    balance_before = balance(client)
    missing_credits = Decimal("99999999999.9999") - balance_before
    if missing_credits:
        grant(stack, owner.user_id, str(missing_credits))
    reply = consume(client, text)
    data(reply)
    entry = credits.parse_exactly(reply.text)["data"]
    assert Decimal(entry["amount_credit"]) == amount
    assert Decimal(entry["delta_credit"]) == -amount
    assert Decimal(entry["balance_after"]) == Decimal("99999999999.9999") - amount
    assert balance(client) == Decimal("99999999999.9999") - amount
    # A client that parses the amount as a double gets the same four decimal places.
    assert f"{reply.json()['data']['amount_credit']:.4f}" == f"{amount:.4f}"


def grant_many(stack: Stack, owner: Owner, count: int) -> None:
    stack.query(
        "SELECT e.id FROM generate_series(1, %s) AS n CROSS JOIN LATERAL credit_append("
        "%s, 'grant', 1, 1, 'operator', n::text, NULL, NULL, NULL, NULL) AS e",
        count,
        owner.user_id,
    )


def get_page(client: httpx2.Client, **query: Any) -> dict[str, Any]:
    return dict(data(client.get(LEDGER, params=query)))


def list_seqs(ledger_page: dict[str, Any]) -> list[int]:
    return [each["seq"] for each in ledger_page["items"]]


def test_credit_ledger_returns_sixteen_entries_newest_first_by_default(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    grant_many(stack, owner, 20)
    first_page = get_page(client)
    assert list_seqs(first_page) == list(range(20, 4, -1))


@contextmanager
def backdated_entries(
    stack: Stack, owner: Owner, first_seq: int, last_seq: int, days: int
) -> Iterator[None]:
    """Move the times of the ledger entries ``first_seq`` to ``last_seq`` into the past.

    The SQL bypasses the trigger that rejects changes of ledger entries. When the block ends,
    restore the original times, because other tests verify the hashes of the ledger entries.
    """

    def move(hours: int) -> None:
        stack.query(
            "SET session_replication_role = replica; UPDATE credit_entries"
            " SET created_at = created_at - make_interval(hours => %s)"
            " WHERE user_id = %s AND seq BETWEEN %s AND %s",
            hours,
            owner.user_id,
            first_seq,
            last_seq,
        )

    move(24 * days)
    yield
    move(-24 * days)


def walk_ledger(client: httpx2.Client, **query: Any) -> tuple[list[int], int]:
    """Read all ledger pages, and return the entries' sequence numbers and the number of pages."""
    seqs: list[int] = []
    cursor: dict[str, str] = {}
    for page_count in range(1, 100):
        ledger_page = get_page(client, **query, **cursor)
        seqs += list_seqs(ledger_page)
        if ledger_page["pagination"]["next_cursor"] is None:
            return seqs, page_count
        cursor = {"cursor": ledger_page["pagination"]["next_cursor"]}
    raise AssertionError("no end")


def test_credit_ledger_filter_by_action_finds_entries_across_large_gaps(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    grant(stack, owner.user_id, "10")
    data(consume(client))
    for _ in range(20):
        grant_many(stack, owner, MAX_SCANNED_ENTRIES // 10)
    data(consume(client))
    newest_seq = 2 * MAX_SCANNED_ENTRIES + 3
    consume_page = get_page(client, action="consume")
    is_last_page = consume_page["pagination"]["next_cursor"] is None
    assert (list_seqs(consume_page), is_last_page) == ([newest_seq], False)
    assert walk_ledger(client, action="consume") == ([newest_seq, 2], 3)
    assert walk_ledger(client, action="topup") == ([], 3)
    both_actions_page = get_page(client, action=["consume", "grant"], limit=2)
    assert list_seqs(both_actions_page) == [newest_seq, newest_seq - 1]
    assert len(walk_ledger(client, action="grant", limit=1000)[0]) == newest_seq - 2


def test_credit_ledger_filter_by_day_includes_the_first_and_last_day(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    today = datetime.now(UTC).date()

    def day(ago: int) -> str:
        return (today - timedelta(days=ago)).isoformat()

    assert get_page(client, **{"from": day(3)})["items"] == []
    grant_many(stack, owner, 9)
    with backdated_entries(stack, owner, 1, 3, 20), backdated_entries(stack, owner, 4, 7, 10):
        assert list_seqs(get_page(client, **{"from": day(10), "to": day(10)})) == [7, 6, 5, 4]
        assert list_seqs(get_page(client, **{"from": day(10)})) == [9, 8, 7, 6, 5, 4]
        assert list_seqs(get_page(client, to=day(10))) == [7, 6, 5, 4, 3, 2, 1]
        assert list_seqs(get_page(client, to=day(11), action="grant", limit=2)) == [3, 2]
        assert get_page(client, **{"from": day(9), "to": day(2)})["items"] == []
        assert get_page(client, to="9999-12-31", action="consume")["items"] == []
        assert walk_ledger(client, **{"from": "0001-01-01", "limit": 2})[0] == list(range(9, 0, -1))


@pytest.mark.parametrize(
    "query", [{"action": "theft"}, {"from": "soon"}, {"action": "grant", "offset": 1}]
)
def test_credit_ledger_rejects_unknown_actions_and_malformed_filters(
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
def test_database_rejects_changes_to_ledger_entries(
    stack: Stack, client: httpx2.Client, owner: Owner, statement: str
) -> None:
    grant_many(stack, owner, 2)
    page_before = get_page(client)
    with pytest.raises(psycopg2.IntegrityError):
        stack.query(statement, *([owner.user_id] if "%s" in statement else []))
    assert get_page(client) == page_before


def test_credit_grant_beyond_the_largest_balance_is_rejected(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    from core.errors import DomainError

    grant(stack, owner.user_id, "99999999999.9999")
    with pytest.raises(DomainError, match="exceed the maximum credit balance"):
        grant(stack, owner.user_id, "0.0001")
    assert list_seqs(get_page(client)) == [1]
