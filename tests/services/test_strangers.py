"""Tests the removal of old records of people without an account, and of orders without an owner."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import httpx2
import psycopg2
import psycopg2.extensions
import pytest

from core.ids import random_id
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from tests.support.credits.old_orders import DISPUTED, create_old_order
from tests.support.lists.people_on_lists import new_list
from tests.support.lists.subscribers import new_address, subscribe
from tests.support.stack.maintenance import run_maintenance

STATUSES = ("active", "pending", "unsubscribed", "removed")
PURGE_TASK = "maintenance.strangers"
Cursor = psycopg2.extensions.cursor
INSERT_MEMBER = (
    "INSERT INTO subscriptions (list_id, user_id, status, source)"
    " VALUES (%s, %s, 'active', 'challenge')"
)
INSERT_OPT_OUT = (
    "INSERT INTO opt_outs (list_id, user_id, address_hmac, kind, source)"
    " SELECT %s, id, sha256(id::text::bytea), 'list', 'page' FROM users WHERE id = %s"
)


def new_person(stack: Stack, *, days: int = 31, **columns: object) -> int:
    """Insert a person without an account, created ``days`` days ago, and return the id."""
    user_id = random_id()
    stack.query(
        "INSERT INTO users (id, email, created_at)"
        " VALUES (%s, %s, now() - make_interval(days => %s))",
        user_id,
        new_address(),
        days,
    )
    for name, value in columns.items():
        stack.query(f"UPDATE users SET {name} = %s WHERE id = %s", value, user_id)
    return user_id


def find_existing(stack: Stack, table: str, ids: dict[str, int]) -> set[str]:
    """Return each name in ``ids`` whose id exists in the table."""
    query = f"SELECT id FROM {table} WHERE id = ANY(%s)"
    existing_ids = {each for (each,) in stack.query(query, list(ids.values()))}
    return {name for name, each in ids.items() if each in existing_ids}


@contextmanager
def open_transaction(stack: Stack) -> Iterator[Cursor]:
    url = stack.environment["PRESSROOM_DATABASE_URL"]
    with closing(psycopg2.connect(url)) as connection, connection, connection.cursor() as cursor:
        yield cursor


@pytest.fixture
def joined_list_id(client: httpx2.Client) -> int:
    return new_list(client)


@pytest.fixture
def other_list_id(client: httpx2.Client) -> int:
    return new_list(client)


def test_people_without_account_or_records_are_deleted_after_30_days(
    stack: Stack, joined_list_id: int
) -> None:
    purged = {
        "nothing": new_person(stack),
        "moved": new_person(stack, email=f"moved-{random_id()}@moved.invalid"),
    }
    remaining = {
        "young": new_person(stack, days=29),
        "account": new_person(stack, password_hash="x"),
        "paid plan": new_person(stack, plan="paid"),
        "erased": new_person(stack, erased_at="2020-01-01"),
        "opt-out": new_person(stack),
        "credits": new_person(stack),
        "order": new_person(stack),
        "mailed token": new_person(stack),
        **{status: new_person(stack) for status in STATUSES},
    }
    stack.query(INSERT_OPT_OUT, joined_list_id, remaining["opt-out"])
    stack.query(
        "INSERT INTO credit_accounts (user_id, last_hash) VALUES (%s, sha256(''))",
        remaining["credits"],
    )
    create_old_order(stack, "status = 'failed'", user_id=remaining["order"])
    stack.query(
        "INSERT INTO mailed_links (purpose, user_id, secret_hmac, expires_at)"
        " VALUES ('confirm', %s, sha256(%s), now() + interval '1 hour')",
        remaining["mailed token"],
        str(remaining["mailed token"]).encode(),
    )
    for status in STATUSES:
        stack.query(
            "INSERT INTO subscriptions (list_id, user_id, status, email, source)"
            " VALUES (%s, %s, %s, %s, 'challenge')",
            joined_list_id,
            remaining[status],
            status,
            new_address(),
        )
    run_maintenance(stack, PURGE_TASK)
    assert find_existing(stack, "users", purged) == set()
    assert find_existing(stack, "users", remaining) == set(remaining)


def test_consent_entries_are_deleted_with_their_purged_person_and_kept_for_others(
    stack: Stack, joined_list_id: int, other_list_id: int
) -> None:
    requesters = {"asked": new_person(stack), "asked twice": new_person(stack)}
    member = {"member": new_person(stack)}
    for person in (*requesters.values(), *member.values()):
        for list_id in (joined_list_id, other_list_id):
            create_request(stack, list_id, person)
            stack.query(
                "INSERT INTO consent_entries (list_id, user_id, how, ip)"
                " VALUES (%s, %s, 'form', '192.0.2.7')",
                list_id,
                person,
            )
    stack.query(
        "UPDATE subscriptions SET status = 'active' WHERE user_id = %s AND list_id = %s",
        member["member"],
        joined_list_id,
    )
    run_maintenance(stack, PURGE_TASK)
    assert find_existing(stack, "users", requesters | member) == set(member)
    query = "SELECT user_id, count(*) FROM consent_entries WHERE user_id = ANY(%s) GROUP BY user_id"
    person_ids = [*requesters.values(), *member.values()]
    assert stack.query(query, person_ids) == [(member["member"], 2)]


def create_request(stack: Stack, list_id: int, person: int, *, days: int = 31) -> int:
    """Insert a stranger's unconfirmed sign-up, and return the id of the row in ``subscriptions``.

    ``days``: the age of the sign-up.
    """
    [(record,)] = stack.query(
        "INSERT INTO subscriptions (list_id, user_id, status, email, source, created_at,"
        " confirmation_asked_at) SELECT %s, %s, 'pending', 'x@example.com', 'challenge', at, at"
        " FROM (SELECT now() - make_interval(days => %s) AS at) AS days RETURNING id",
        list_id,
        person,
        days,
    )
    record_event(stack, list_id, person, "requested", None, "pending")
    assert isinstance(record, int)
    return record


def record_event(stack: Stack, list_id: int, person: int, *change: str | None) -> None:
    """Record an event. ``change``: the action, and the member's status before and after it."""
    stack.query(
        "INSERT INTO subscription_events (list_id, user_id, action, actor, via, status_before,"
        " status_after) VALUES (%s, %s, %s, 'stranger', 'challenge', %s, %s)",
        list_id,
        person,
        *change,
    )


def read_history(stack: Stack, person: int) -> list[tuple[object, ...]]:
    return stack.query(
        "SELECT action, status_before, status_after FROM subscription_events WHERE user_id = %s"
        " ORDER BY id",
        person,
    )


def read_statuses(stack: Stack, person: int) -> list[object]:
    query = "SELECT status FROM subscriptions WHERE user_id = %s ORDER BY list_id"
    return [status for (status,) in stack.query(query, person)]


def test_people_who_never_confirm_are_deleted_with_their_history_after_30_days(
    stack: Stack, joined_list_id: int
) -> None:
    unconfirmed, asked_twice, young, asked_again = (new_person(stack) for _ in range(4))
    for person in (unconfirmed, asked_twice, asked_again):
        create_request(stack, joined_list_id, person)
    record_event(stack, joined_list_id, asked_twice, "requested", "pending", "pending")
    create_request(stack, joined_list_id, young, days=29)
    stack.query(
        "UPDATE subscriptions SET confirmation_asked_at = now() - interval '29 days'"
        " WHERE user_id = %s",
        asked_again,
    )
    run_maintenance(stack, PURGE_TASK)
    people = {"gone": unconfirmed, "twice": asked_twice, "young": young, "asked again": asked_again}
    assert find_existing(stack, "users", people) == {"young", "asked again"}
    for person in (unconfirmed, asked_twice):
        assert (read_statuses(stack, person), read_history(stack, person)) == ([], [])
    for person in (young, asked_again):
        assert read_statuses(stack, person) == ["pending"]
        assert len(read_history(stack, person)) == 1


def test_unconfirmed_request_of_a_known_person_is_deleted_without_the_person(
    stack: Stack, joined_list_id: int, other_list_id: int
) -> None:
    known_people = {
        "member elsewhere": new_person(stack),
        "account": new_person(stack, password_hash="x"),
        "opted out": new_person(stack),
        "was a member": new_person(stack),
    }
    for person in known_people.values():
        create_request(stack, joined_list_id, person)
    stack.query(INSERT_MEMBER, other_list_id, known_people["member elsewhere"])
    stack.query(INSERT_OPT_OUT, joined_list_id, known_people["opted out"])
    record_event(
        stack, other_list_id, known_people["was a member"], "unsubscribed", "active", "unsubscribed"
    )
    run_maintenance(stack, PURGE_TASK)
    assert find_existing(stack, "users", known_people) == set(known_people)
    assert {name: read_statuses(stack, person_id) for name, person_id in known_people.items()} == {
        **{name: [] for name in known_people},
        "member elsewhere": ["active"],
    }
    assert all(read_history(stack, person_id) for person_id in known_people.values())


@pytest.mark.parametrize("earlier_status", ["removed", "unsubscribed"])
def test_lapsed_confirmation_request_restores_the_previous_member_status(
    stack: Stack, joined_list_id: int, earlier_status: str
) -> None:
    person = new_person(stack, days=900)
    create_request(stack, joined_list_id, person)
    record_event(stack, joined_list_id, person, "confirmed", "pending", "active")
    record_event(stack, joined_list_id, person, earlier_status, "active", earlier_status)
    record_event(stack, joined_list_id, person, "requested", earlier_status, "pending")
    record_event(stack, joined_list_id, person, "requested", "pending", "pending")
    run_maintenance(stack, PURGE_TASK)
    assert read_statuses(stack, person) == [earlier_status]
    assert read_history(stack, person)[-1] == ("lapsed", "pending", earlier_status)
    run_maintenance(stack, PURGE_TASK)
    assert len(read_history(stack, person)) == 6
    assert find_existing(stack, "users", {"person": person}) == {"person"}


@pytest.mark.parametrize(
    "lock",
    [
        "SELECT 1 FROM users WHERE id = %s FOR KEY SHARE",  # a confirmation's lock on the person
        "SELECT 1 FROM subscriptions WHERE user_id = %s FOR UPDATE",  # an undo's lock on the record
    ],
)
def test_retention_skips_a_request_that_is_being_confirmed_concurrently(
    stack: Stack, joined_list_id: int, lock: str
) -> None:
    person = new_person(stack)
    unlocked_person = new_person(stack)
    for person_id in (person, unlocked_person):
        create_request(stack, joined_list_id, person_id)
    with open_transaction(stack) as cursor:
        cursor.execute(lock, (person,))
        run_maintenance(stack, PURGE_TASK)
        assert read_statuses(stack, person) == ["pending"]
        assert read_statuses(stack, unlocked_person) == []
    run_maintenance(stack, PURGE_TASK)
    assert find_existing(stack, "users", {"person": person}) == set()


def test_retention_keeps_person_who_subscribes_during_purge(
    stack: Stack, joined_list_id: int
) -> None:
    person = new_person(stack)
    with open_transaction(stack) as cursor:
        cursor.execute(INSERT_MEMBER, (joined_list_id, person))
        run_maintenance(stack, PURGE_TASK)
    assert find_existing(stack, "users", {"person": person}) == {"person"}


def test_person_who_subscribes_after_being_purged_concurrently_becomes_a_new_person(
    stack: Stack, stranger: httpx2.Client, joined_list_id: int
) -> None:
    person = new_person(stack)
    email = new_address()
    stack.query("UPDATE users SET email = %s WHERE id = %s", email, person)
    status_codes: list[int] = []

    def sign_up() -> None:
        status_codes.append(subscribe(stranger, joined_list_id, email).status_code)

    thread = threading.Thread(target=sign_up)
    with open_transaction(stack) as cursor:
        cursor.execute("DELETE FROM users WHERE id = %s", (person,))
        thread.start()
        query = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        eventually(lambda: bool(stack.query(query)), what="a call that waits for the purge")
    thread.join(30)
    assert status_codes == [200]
    user_query = (
        "SELECT u.id FROM users u JOIN subscriptions s ON s.user_id = u.id WHERE u.email = %s"
    )
    [(new_id,)] = stack.query(user_query, email)
    assert new_id != person


def test_unpaid_payment_orders_without_an_owner_are_deleted_after_90_days(
    stack: Stack, owner: Owner
) -> None:
    purged = {
        "never opened": create_old_order(stack),
        "failed": create_old_order(stack, "status = 'failed'"),
        "expired": create_old_order(stack, "status = 'pending'", "status = 'expired'"),
    }
    remaining = {
        "young": create_old_order(stack, days=89),
        "owned": create_old_order(stack, user_id=owner.user_id),
        "claimed": create_old_order(stack, f"user_id = {owner.user_id}, claimed_at = now()"),
        "asked about": create_old_order(stack, "next_check_at = now() + interval '1 day'"),
        "paid": create_old_order(
            stack, "paid_at = now()", "status = 'pending'", "status = 'paid_unclaimed'"
        ),
        "disputed, before its payment is known": create_old_order(stack, DISPUTED),
        "refunded, before its payment is known": create_old_order(stack, "refunded_minor = 5"),
        "review": create_old_order(
            stack, "mismatch = 'x'", "status = 'pending'", "status = 'review'"
        ),
    }
    run_maintenance(stack, PURGE_TASK)
    assert find_existing(stack, "payment_orders", purged) == set()
    assert find_existing(stack, "payment_orders", remaining) == set(remaining)
    for table in ("payment_order_changes", "payment_events"):
        [(order_count,)] = stack.query(
            f"SELECT count(DISTINCT order_id) FROM {table} WHERE order_id = ANY(%s)",
            [*purged.values(), *remaining.values()],
        )
        assert order_count == len(remaining)


def test_retention_keeps_a_payment_order_that_is_claimed_during_purge(
    stack: Stack, owner: Owner
) -> None:
    order_id = create_old_order(stack)
    with open_transaction(stack) as cursor:
        claim = "UPDATE payment_orders SET user_id = %s, claimed_at = now() WHERE id = %s"
        cursor.execute(claim, (owner.user_id, order_id))
        run_maintenance(stack, PURGE_TASK)
    assert find_existing(stack, "payment_orders", {"claimed": order_id}) == {"claimed"}
