"""Tests the rules that the database enforces for payment orders."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg2
import psycopg2.extensions
import pytest

from devstack.harness.stack import Stack

# Maps each status of an order to the statuses that may follow it.
NEXT_STATUSES = {
    "created": {"pending", "failed"},
    "pending": {"paid", "paid_unclaimed", "failed", "expired", "review"},
    "expired": {"paid", "paid_unclaimed", "review"},
    "paid_unclaimed": {"paid", "refunded", "disputed", "review"},
    "paid": {"refunded", "disputed"},
    "disputed": {"paid", "refunded"},
    "review": {"paid", "paid_unclaimed", "refunded"},
    # A payment may arrive although the order failed.
    "failed": {"review"},
    # A refund may fail after the order was marked as refunded.
    "refunded": {"paid", "paid_unclaimed"},
}
# Maps each status of an order to the changes that lead a new order to this status.
STATUS_PATHS = {
    "created": [],
    "pending": ["pending"],
    "failed": ["failed"],
    "expired": ["pending", "expired"],
    "review": ["pending", "review"],
    "paid": ["pending", "paid"],
    "paid_unclaimed": ["pending", "paid_unclaimed"],
    "disputed": ["pending", "paid", "disputed"],
    "refunded": ["pending", "paid", "refunded"],
}
INSERT_ORDER = (
    "INSERT INTO payment_orders (id, status, changed_via, channel, currency, amount, amount_minor,"
    " credit_amount, credits_per_usd, units_per_usd, expires_at)"
    " VALUES (1, %s, 'request', 'sandbox', 'USD', 5, 500, 500, 100, 1, now())"
)
Cursor = psycopg2.extensions.cursor


@pytest.fixture
def cursor(stack: Stack) -> Iterator[Cursor]:
    """A database cursor whose transaction is rolled back after the test."""
    with closing(psycopg2.connect(stack.owner_url)) as connection, connection.cursor() as opened:
        yield opened


@contextmanager
def rolled_back(cursor: Cursor) -> Iterator[None]:
    cursor.execute("SAVEPOINT trial")
    try:
        yield
    finally:
        cursor.execute("ROLLBACK TO trial")


def is_accepted(cursor: Cursor, statement: str, *values: object) -> bool:
    """Return whether the database accepts a statement. Roll the statement's changes back."""
    with rolled_back(cursor):
        try:
            cursor.execute(statement, values)
        except (psycopg2.errors.CheckViolation, psycopg2.errors.RestrictViolation):
            return False
        return True


def assign_disputes(total: int, ended: int, lost: int) -> str:
    """Return SQL assignments that store the total amounts of an order's disputes.

    The assignments also set ``dispute`` and ``disputed_minor``, because the database requires that
    these two columns match the amounts.
    """
    state = "open" if total > ended else "lost" if lost else "won"
    return (
        f"disputes_minor = {total}, disputes_ended_minor = {ended}, disputes_lost_minor = {lost},"
        f" dispute = '{state}', disputed_minor = {total - ended + lost}"
    )


def insert_order(cursor: Cursor, status: str) -> None:
    cursor.execute(INSERT_ORDER, ("created",))
    for step in STATUS_PATHS[status]:
        cursor.execute("UPDATE payment_orders SET status = %s WHERE id = 1", (step,))


@pytest.mark.parametrize("status", NEXT_STATUSES)
def test_database_accepts_only_allowed_status_changes_of_a_payment_order(
    cursor: Cursor, status: str
) -> None:
    insert_order(cursor, status)
    change = "UPDATE payment_orders SET status = %s WHERE id = 1"
    accepted = {
        next_status for next_status in NEXT_STATUSES if is_accepted(cursor, change, next_status)
    }
    assert accepted - {status} == NEXT_STATUSES[status]
    assert not is_accepted(cursor, change, "elsewhere")


def test_new_payment_order_requires_status_created(cursor: Cursor) -> None:
    assert {status for status in NEXT_STATUSES if is_accepted(cursor, INSERT_ORDER, status)} == {
        "created"
    }


def test_database_records_each_status_change_of_a_payment_order(cursor: Cursor) -> None:
    insert_order(cursor, "refunded")
    cursor.execute("UPDATE payment_orders SET payment_url = 'x' WHERE id = 1")
    cursor.execute(
        "SELECT from_status, to_status FROM payment_order_changes ORDER BY id DESC LIMIT 4"
    )
    assert cursor.fetchall() == [
        ("paid", "refunded"),
        ("pending", "paid"),
        ("created", "pending"),
        (None, "created"),
    ]


@pytest.mark.parametrize(
    "change",
    [
        "id = 2",
        "channel = 'stripe'",
        "currency = 'EUR'",
        "amount = 6",
        "amount_minor = 600",
        "credit_amount = 501",
        "credits_per_usd = 101",
        "units_per_usd = 2",
        "expires_at = now() + interval '1 hour'",
        "created_at = now() + interval '1 hour'",
    ],
)
def test_terms_of_a_payment_order_cannot_be_changed(cursor: Cursor, change: str) -> None:
    insert_order(cursor, "pending")
    assert not is_accepted(cursor, f"UPDATE payment_orders SET {change} WHERE id = 1")


@pytest.mark.parametrize(
    ("fact", "reversal"),
    [
        ("session_id = 'a'", "session_id = 'b'"),
        ("payment_id = 'a'", "payment_id = NULL"),
        ("paid_at = now()", "paid_at = NULL"),
        ("claimed_at = now()", "claimed_at = NULL"),
        ("is_failed = true", "is_failed = false"),
        ("is_expired = true", "is_expired = false"),
        ("refunded_minor = 5", "refunded_minor = 4"),
        ("refunds_failed_minor = 5", "refunds_failed_minor = 4"),
        ("closed_at = now()", "closed_at = NULL"),
        ("closed_at = now()", "closed_at = now() + interval '1 second'"),
        (assign_disputes(5, 0, 0), "dispute = NULL"),
        (assign_disputes(5, 0, 0), "dispute = 'won'"),
        (assign_disputes(5, 0, 0), "disputed_minor = 6"),
        (assign_disputes(5, 5, 0), "dispute = 'open'"),
        (assign_disputes(5, 5, 5), "dispute = 'won'"),
        (assign_disputes(9, 5, 3), assign_disputes(8, 5, 3)),
        (assign_disputes(9, 5, 3), assign_disputes(9, 4, 3)),
        (assign_disputes(9, 5, 3), assign_disputes(9, 5, 2)),
        (assign_disputes(9, 5, 3), "dispute = 'won'"),
        (assign_disputes(9, 5, 3), "disputed_minor = 6"),
        ("mismatch = 'a'", "mismatch = NULL"),
        ("resolution = 'credit'", "resolution = 'refunded'"),
        ("credited = 500", "credited = 0"),
    ],
)
def test_recorded_facts_of_a_payment_order_cannot_be_reverted(
    cursor: Cursor, fact: str, reversal: str
) -> None:
    insert_order(cursor, "pending")
    cursor.execute(f"UPDATE payment_orders SET {fact} WHERE id = 1")
    assert is_accepted(cursor, f"UPDATE payment_orders SET {fact} WHERE id = 1")
    assert not is_accepted(cursor, f"UPDATE payment_orders SET {reversal} WHERE id = 1")


@pytest.mark.parametrize(
    "impossible_facts",
    [
        "refunded_minor = -1",
        "refunds_failed_minor = -1",
        "credited = 499",
        "taken = 1",
        "dispute = 'x'",
        "dispute = 'open'",
        "disputed_minor = 5",
        "disputes_minor = 5",
        "disputes_minor = 5, disputed_minor = 5, dispute = 'won'",
        "disputes_minor = 5, disputed_minor = 0, dispute = 'open'",
        assign_disputes(5, 6, 0),
        assign_disputes(5, 4, 5),
        "resolution = 'x'",
    ],
)
def test_impossible_facts_of_a_payment_order_are_rejected(
    cursor: Cursor, impossible_facts: str
) -> None:
    insert_order(cursor, "pending")
    assert not is_accepted(cursor, f"UPDATE payment_orders SET {impossible_facts} WHERE id = 1")


def test_owner_of_a_payment_order_cannot_be_changed(cursor: Cursor, stack: Stack) -> None:
    first = stack.create_owner().user_id
    second = stack.create_owner().user_id
    insert_order(cursor, "pending")
    change = "UPDATE payment_orders SET user_id = %s WHERE id = 1"
    cursor.execute(change, (first,))
    assert not is_accepted(cursor, change, second)
    assert not is_accepted(cursor, change, None)


def test_paid_payment_order_and_its_history_cannot_be_deleted_or_rewritten(cursor: Cursor) -> None:
    insert_order(cursor, "paid")
    cursor.execute(
        "INSERT INTO payment_events (channel, event_id, type, order_id, facts, happened_at)"
        " VALUES ('sandbox', 'evt', 'x', 1, '{}', now())"
    )
    tables = ("payment_order_changes", "payment_events", "payment_order_transitions")
    for table in ("payment_orders", *tables):
        assert not is_accepted(cursor, f"DELETE FROM {table}"), table
        assert not is_accepted(cursor, f"TRUNCATE {table} CASCADE"), table
    assert not is_accepted(cursor, "UPDATE payment_order_changes SET via = 'x'")
    assert not is_accepted(cursor, "UPDATE payment_events SET type = 'x'")
    assert not is_accepted(cursor, "UPDATE payment_order_transitions SET to_status = 'paid'")


def test_payment_event_is_stored_only_once_per_channel(cursor: Cursor) -> None:
    insert_order(cursor, "pending")
    insert_event = (
        "INSERT INTO payment_events (channel, event_id, type, order_id, facts, happened_at)"
        " VALUES (%s, 'evt', 'x', 1, '{}', now())"
    )
    cursor.execute(insert_event, ("sandbox",))
    cursor.execute(insert_event, ("stripe",))
    with pytest.raises(psycopg2.errors.UniqueViolation):
        cursor.execute(insert_event, ("sandbox",))


def test_credit_entry_for_a_missing_payment_order_is_rejected(cursor: Cursor, stack: Stack) -> None:
    user_id = stack.create_owner().user_id
    with pytest.raises(psycopg2.errors.ForeignKeyViolation):
        cursor.execute(
            "SELECT credit_give(%s, 'topup', 1, 'payment', '1', NULL, 987654321, 1, 'USD')",
            (user_id,),
        )
