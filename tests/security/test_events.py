"""Tests that account events can't be changed, and that they don't leak personal data."""

import re

import psycopg2
import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.people.erasure import erase
from tests.support.people.visiting import new_account, new_address, new_visitor, user_id_of
from tests.support.stack.maintenance import run_maintenance

INSERT_OLD_EVENT = (
    "INSERT INTO events (user_id, type, occurred_at, ip)"
    " VALUES (%s, 'key.created', now() - %s::interval, '192.0.2.1')"
)
SELECT_EVENTS = "SELECT id, type, ip, user_agent FROM events WHERE user_id = %s ORDER BY id"


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM events WHERE user_id = %s",
        "UPDATE events SET ip = NULL, user_agent = NULL WHERE user_id = %s",
        "UPDATE events SET type = 'key.ended' WHERE user_id = %s",
        "UPDATE events SET occurred_at = now() - interval '2 years' WHERE user_id = %s",
        "TRUNCATE events /* %s */",
    ],
)
def test_account_events_cannot_be_changed_or_deleted(
    stack: Stack, owner: Owner, statement: str
) -> None:
    stack.query(INSERT_OLD_EVENT, owner.user_id, "11 months")
    before = stack.query(SELECT_EVENTS, owner.user_id)
    with pytest.raises(psycopg2.errors.RestrictViolation):
        stack.query(statement, owner.user_id)
    assert stack.query(SELECT_EVENTS, owner.user_id) == before


def test_purge_deletes_only_account_events_older_than_one_year(stack: Stack, owner: Owner) -> None:
    recent_events = stack.query(SELECT_EVENTS, owner.user_id)
    stack.query(INSERT_OLD_EVENT, owner.user_id, "364 days")
    events_within_a_year = stack.query(SELECT_EVENTS, owner.user_id)
    assert len(events_within_a_year) == len(recent_events) + 1
    for _ in range(3):
        stack.query(INSERT_OLD_EVENT, owner.user_id, "1 year 1 day")
    assert stack.query("SELECT purge_events(1, 0)") == [(1,)]
    run_maintenance(stack, "maintenance.purge")
    assert stack.query(SELECT_EVENTS, owner.user_id) == events_within_a_year


def test_temporary_table_cannot_bypass_the_event_trigger(stack: Stack, owner: Owner) -> None:
    stack.query(INSERT_OLD_EVENT, owner.user_id, "11 months")
    with pytest.raises(psycopg2.errors.RestrictViolation):
        stack.query(
            "CREATE TEMP TABLE users ON COMMIT DROP AS"
            " SELECT id, now() AS erased_at FROM public.users;"
            "UPDATE events SET ip = NULL, user_agent = NULL WHERE user_id = %s",
            owner.user_id,
        )


def test_events_of_erased_person_are_kept_without_ip_and_user_agent(stack: Stack) -> None:
    email = new_account(stack)
    user_id = user_id_of(stack, email)
    with new_visitor(stack) as visitor:
        visitor.log_in(email)
    [(event_id, kind, ip, _)] = stack.query(SELECT_EVENTS, user_id)
    assert ip == "127.0.0.1"
    erase(stack.resources, email)
    assert stack.query(SELECT_EVENTS, user_id) == [(event_id, kind, None, None)]
    with pytest.raises(psycopg2.errors.RestrictViolation):
        stack.query("UPDATE events SET detail = '{}', type = 'x' WHERE user_id = %s", user_id)


def test_account_event_truncates_long_user_agent(stack: Stack) -> None:
    email = new_account(stack)
    with new_visitor(stack) as visitor:
        visitor.client.headers["User-Agent"] = "x" * 5000
        assert visitor.log_in(email).status_code == 303
        assert "x" * 301 not in visitor.get("/account/events").text
    [(_, _, _, user_agent)] = stack.query(SELECT_EVENTS, user_id_of(stack, email))
    assert user_agent == "x" * 300


def test_log_has_account_events_without_addresses(stack: Stack) -> None:
    email = new_account(stack)
    unknown_email = new_address()
    [api] = [each for each in stack.processes if each.name == "api"][:1]
    log_length = len(api.log.read_text())
    with new_visitor(stack) as visitor:
        visitor.log_in(unknown_email, "not the password")
        visitor.log_in(email, "not the password")
        visitor.log_in(email)
    log = api.log.read_text()[log_length:]
    for kind in ("login.failed", "login.succeeded"):
        [line] = [line for line in log.splitlines() if f'"{kind}"' in line]
        assert str(user_id_of(stack, email)) in line
    assert "login.without_account" in log
    assert email not in log
    assert unknown_email not in log
    assert not re.search(r"127\.0\.0\.1(?!:\d)", log)
