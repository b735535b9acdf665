from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg2
import psycopg2.extensions
import pytest

from devstack.harness.stack import Stack

# By the contract.
ALLOWED = {
    "created": {"pending", "failed"},
    "pending": {"paid", "paid_unclaimed", "failed", "expired", "review"},
    "expired": {"paid", "paid_unclaimed", "review"},
    "paid_unclaimed": {"paid", "refunded", "disputed", "review"},
    "paid": {"refunded", "disputed"},
    "disputed": {"paid", "refunded"},
    "review": {"paid", "paid_unclaimed", "refunded"},
    # A payment that came all the same.
    "failed": {"review"},
    # A refund that failed.
    "refunded": {"paid", "paid_unclaimed"},
}
TO = {
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
NEW = (
    "INSERT INTO payment_orders (id, status, changed_via, channel, currency, amount, amount_minor,"
    " credit_amount, credits_per_usd, units_per_usd, expires_at)"
    " VALUES (1, %s, 'request', 'sandbox', 'USD', 5, 500, 500, 100, 1, now())"
)
Cursor = psycopg2.extensions.cursor


@pytest.fixture
def cursor(stack: Stack) -> Iterator[Cursor]:
    """A transaction that is rolled back."""
    with closing(psycopg2.connect(stack.owner_url)) as connection, connection.cursor() as opened:
        yield opened


@contextmanager
def tried(cursor: Cursor) -> Iterator[None]:
    cursor.execute("SAVEPOINT trial")
    try:
        yield
    finally:
        cursor.execute("ROLLBACK TO trial")


def passes(cursor: Cursor, statement: str, *values: object) -> bool:
    with tried(cursor):
        try:
            cursor.execute(statement, values)
        except (psycopg2.errors.CheckViolation, psycopg2.errors.RestrictViolation):
            return False
        return True


def disputed(total: int, ended: int, lost: int) -> str:
    """Sums of disputes, with what follows from them."""
    state = "open" if total > ended else "lost" if lost else "won"
    return (
        f"disputes_minor = {total}, disputes_ended_minor = {ended}, disputes_lost_minor = {lost},"
        f" dispute = '{state}', disputed_minor = {total - ended + lost}"
    )


def order_in(cursor: Cursor, status: str) -> None:
    cursor.execute(NEW, ("created",))
    for step in TO[status]:
        cursor.execute("UPDATE payment_orders SET status = %s WHERE id = 1", (step,))


@pytest.mark.parametrize("status", ALLOWED)
def test_database_accepts_only_allowed_status_changes_of_a_payment_order(
    cursor: Cursor, status: str
) -> None:
    order_in(cursor, status)
    change = "UPDATE payment_orders SET status = %s WHERE id = 1"
    passed = {to for to in ALLOWED if passes(cursor, change, to)}
    assert passed - {status} == ALLOWED[status]
    assert not passes(cursor, change, "elsewhere")


def test_new_payment_order_requires_status_created(cursor: Cursor) -> None:
    assert {status for status in ALLOWED if passes(cursor, NEW, status)} == {"created"}


def test_database_records_each_status_change_of_a_payment_order(cursor: Cursor) -> None:
    order_in(cursor, "refunded")
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
    order_in(cursor, "pending")
    assert not passes(cursor, f"UPDATE payment_orders SET {change} WHERE id = 1")


@pytest.mark.parametrize(
    ("known", "less"),
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
        (disputed(5, 0, 0), "dispute = NULL"),
        (disputed(5, 0, 0), "dispute = 'won'"),
        (disputed(5, 0, 0), "disputed_minor = 6"),
        (disputed(5, 5, 0), "dispute = 'open'"),
        (disputed(5, 5, 5), "dispute = 'won'"),
        (disputed(9, 5, 3), disputed(8, 5, 3)),
        (disputed(9, 5, 3), disputed(9, 4, 3)),
        (disputed(9, 5, 3), disputed(9, 5, 2)),
        (disputed(9, 5, 3), "dispute = 'won'"),
        (disputed(9, 5, 3), "disputed_minor = 6"),
        ("mismatch = 'a'", "mismatch = NULL"),
        ("resolution = 'credit'", "resolution = 'refunded'"),
        ("credited = 500", "credited = 0"),
    ],
)
def test_recorded_facts_of_a_payment_order_cannot_be_reverted(
    cursor: Cursor, known: str, less: str
) -> None:
    order_in(cursor, "pending")
    cursor.execute(f"UPDATE payment_orders SET {known} WHERE id = 1")
    assert passes(cursor, f"UPDATE payment_orders SET {known} WHERE id = 1")
    assert not passes(cursor, f"UPDATE payment_orders SET {less} WHERE id = 1")


@pytest.mark.parametrize(
    "impossible",
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
        disputed(5, 6, 0),
        disputed(5, 4, 5),
        "resolution = 'x'",
    ],
)
def test_impossible_facts_of_a_payment_order_are_rejected(cursor: Cursor, impossible: str) -> None:
    order_in(cursor, "pending")
    assert not passes(cursor, f"UPDATE payment_orders SET {impossible} WHERE id = 1")


def test_owner_of_a_payment_order_cannot_be_changed(cursor: Cursor, stack: Stack) -> None:
    first, second = stack.create_owner().user_id, stack.create_owner().user_id
    order_in(cursor, "pending")
    change = "UPDATE payment_orders SET user_id = %s WHERE id = 1"
    cursor.execute(change, (first,))
    assert not passes(cursor, change, second)
    assert not passes(cursor, change, None)


def test_paid_payment_order_and_its_history_cannot_be_deleted_or_rewritten(cursor: Cursor) -> None:
    order_in(cursor, "paid")
    cursor.execute(
        "INSERT INTO payment_events (channel, event_id, type, order_id, facts, happened_at)"
        " VALUES ('sandbox', 'evt', 'x', 1, '{}', now())"
    )
    tables = ("payment_order_changes", "payment_events", "payment_order_transitions")
    for table in ("payment_orders", *tables):
        assert not passes(cursor, f"DELETE FROM {table}"), table
        assert not passes(cursor, f"TRUNCATE {table} CASCADE"), table
    assert not passes(cursor, "UPDATE payment_order_changes SET via = 'x'")
    assert not passes(cursor, "UPDATE payment_events SET type = 'x'")
    assert not passes(cursor, "UPDATE payment_order_transitions SET to_status = 'paid'")


def test_payment_event_is_stored_only_once_per_channel(cursor: Cursor) -> None:
    order_in(cursor, "pending")
    keep = (
        "INSERT INTO payment_events (channel, event_id, type, order_id, facts, happened_at)"
        " VALUES (%s, 'evt', 'x', 1, '{}', now())"
    )
    cursor.execute(keep, ("sandbox",))
    cursor.execute(keep, ("stripe",))
    with pytest.raises(psycopg2.errors.UniqueViolation):
        cursor.execute(keep, ("sandbox",))


def test_credit_entry_for_a_missing_payment_order_is_rejected(cursor: Cursor, stack: Stack) -> None:
    user_id = stack.create_owner().user_id
    with pytest.raises(psycopg2.errors.ForeignKeyViolation):
        cursor.execute(
            "SELECT credit_give(%s, 'topup', 1, 'payment', '1', NULL, 987654321, 1, 'USD')",
            (user_id,),
        )
