"""What upkeep does."""

from collections.abc import Iterator

import pytest

from core.ids import random_hash_id
from services.access import sessions
from services.accounts import account_mails, mailed_tokens
from services.accounts.account_mails import MailKind
from services.accounts.mailed_tokens import Purpose
from services.privacy import purging
from tests.oauth import log_in, register
from tests.services.subscriptions.members.acting import Acting
from tests.stack import Owner, Stack
from tests.upkeep import run_upkeep


@pytest.fixture
def acting(stack: Stack) -> Iterator[Acting]:
    with stack.client() as client:
        yield Acting(stack, client)


def test_folding_leaves_the_count_as_it_is_and_no_differences(
    stack: Stack, acting: Acting, owner: Owner
) -> None:
    list_id = acting.new_list(owner, confirm_required=False, challenge=False)
    person = acting.new_person(with_login=True)
    for _ in range(2):
        acting.reply("POST", f"/subscriptions/{list_id}/no-challenge", key=person.key)
        acting.leave(list_id, key=person.key)
    acting.ask(list_id, f"{random_hash_id()}@example.com")
    # More than two batches, which come to nothing together.
    stack.query("INSERT INTO subscriber_deltas (list_id, active) SELECT %s, 1", list_id)
    stack.query(
        "INSERT INTO subscriber_deltas (list_id, active)"
        " SELECT %s, CASE WHEN n %% 2 = 0 THEN 1 ELSE -1 END FROM generate_series(1, 20001) AS n",
        list_id,
    )
    run_upkeep(stack, "maintenance.fold_counts")
    left = "SELECT 1 FROM subscriber_deltas WHERE list_id = %s LIMIT 1"
    assert not stack.query(left, list_id)
    stored = stack.query("SELECT active FROM subscriber_counts WHERE list_id = %s", list_id)
    assert stored == [(1,)]
    with stack.client(owner.key) as client:
        assert client.get(f"/lists/{list_id}").json()["data"]["subscriber_count"] == 1


def test_mailed_links_are_forgotten_once_they_expired(stack: Stack, acting: Acting) -> None:
    person = acting.new_person(with_login=True)
    assert person.user_id is not None
    keyring = stack.resources.keyring
    for _ in range(2):
        with stack.resources.unit_of_work() as uow:
            mailed_tokens.make(uow, keyring, Purpose.CONFIRM_SUBSCRIPTION, user_id=person.user_id)
    stack.query(
        "UPDATE mailed_links SET expires_at = now() - interval '1 second'"
        " WHERE id = (SELECT min(id) FROM mailed_links WHERE user_id = %s)",
        person.user_id,
    )
    of_person = "SELECT count(*) FROM mailed_links WHERE user_id = %s"
    run_upkeep(stack, "maintenance.purge")
    assert stack.query(of_person, person.user_id) == [(1,)]


def test_codes_and_tokens_are_forgotten_once_they_expired(stack: Stack, owner: Owner) -> None:
    program, person = register(stack), log_in(stack, owner)
    program.tokens(person)
    program.tokens(person)
    person.browser.close()
    grants = "(SELECT id FROM oauth_grants WHERE user_id = %s)"
    for table, age in (("oauth_codes", "31 days"), ("oauth_tokens", "1 second")):
        stack.query(
            f"UPDATE {table} SET expires_at = now() - interval '{age}' WHERE id ="
            f" (SELECT min(id) FROM {table} WHERE grant_id = {grants})",
            owner.user_id,
        )
    # Its minute is over, but it still tells who comes with it a second time.
    stack.query(
        "UPDATE oauth_codes SET expires_at = now() - interval '29 days' WHERE id ="
        f" (SELECT max(id) FROM oauth_codes WHERE grant_id = {grants})",
        owner.user_id,
    )
    run_upkeep(stack, "maintenance.purge")
    for table, left in (("oauth_codes", 1), ("oauth_tokens", 3)):
        count = f"SELECT count(*) FROM {table} WHERE grant_id = {grants}"
        assert stack.query(count, owner.user_id) == [(left,)]


def test_purging_forgets_sessions_attempts_and_mails_whose_time_is_over(
    stack: Stack, owner: Owner
) -> None:
    keyring = stack.resources.keyring
    attempt = (
        "INSERT INTO login_attempts (subject, attempts, paused_until, tried_at)"
        " VALUES (sha256(%s), 9, now(), now() - %s::interval)"
    )
    with stack.resources.unit_of_work() as uow:
        sessions.begin(uow, keyring, owner.user_id)
        account_mails.request_mail(uow, MailKind.FORGOTTEN_PASSWORD, owner.email)
    stack.query("UPDATE user_sessions SET expires_at = now() WHERE user_id = %s", owner.user_id)
    day = "UPDATE account_mails SET created_at = now() - interval '1 day' WHERE email = %s"
    stack.query(day, owner.email)
    stack.query(attempt, b"old", "25 hours")
    with stack.resources.unit_of_work() as uow:
        sessions.begin(uow, keyring, owner.user_id)
        account_mails.request_mail(uow, MailKind.FORGOTTEN_PASSWORD, owner.email)
    stack.query(attempt, b"young", "23 hours")

    def left() -> list[tuple[object, ...]]:
        return stack.query(
            "SELECT (SELECT count(*) FROM user_sessions WHERE user_id = %s),"
            " (SELECT count(*) FROM account_mails WHERE email = %s),"
            " (SELECT array_agg(subject = sha256('young')) FROM login_attempts"
            " WHERE subject IN (sha256('old'), sha256('young')))",
            owner.user_id,
            owner.email,
        )

    run_upkeep(stack, "maintenance.purge")
    assert left() == [(1, 1, [True])]
    stack.query("DELETE FROM login_attempts")


def test_ip_addresses_are_shortened_after_90_days(
    stack: Stack, acting: Acting, owner: Owner
) -> None:
    list_id = acting.new_list(owner, confirm_required=False, challenge=False)
    given = {
        "192.0.2.77": "192.0.2.0/24",
        "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
        "::ffff:192.0.2.7": "::/64",
        "not an address": None,
    }
    # The events of other tests are young, and came before.
    stack.query(
        "UPDATE upkeep SET bookmark = (SELECT max(id) FROM subscription_events)"
        " WHERE name = 'maintenance.shorten_ips'"
    )
    # Oldest first, as they come to be.
    for age in (91, 89):
        for ip in given:
            stack.query(
                "INSERT INTO subscription_events (list_id, user_id, action, actor, via, ip,"
                " created_at) VALUES (%s, %s, 'requested', 'stranger', 'challenge', %s,"
                " now() - make_interval(days => %s))",
                list_id,
                owner.user_id,
                ip,
                age,
            )
    shown = (
        "SELECT ip FROM subscription_events WHERE user_id = %s"
        " AND created_at < now() - make_interval(days => %s) ORDER BY id"
    )
    for _ in range(2):
        run_upkeep(stack, "maintenance.shorten_ips")
        old = [ip for (ip,) in stack.query(shown, owner.user_id, 90)]
        every = [ip for (ip,) in stack.query(shown, owner.user_id, 0)]
        assert old == list(given.values())
        assert every == [*given.values(), *given]


def test_ip_addresses_of_consent_are_shortened_after_90_days(
    stack: Stack, acting: Acting, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_id = acting.new_list(owner, confirm_required=False, challenge=False)
    given: dict[str | None, str | None] = {
        "192.0.2.77": "192.0.2.0/24",
        "2001:db8:1:2:3:4:5:6": "2001:db8:1::/48",
        "192.0.2.0/24": "192.0.2.0/24",
        "not an address": None,
        None: None,
    }
    for age in (91, 89):
        for number, ip in enumerate(given):
            moment = "now() - make_interval(days => %s)"
            stack.query(
                "INSERT INTO consent_entries (list_id, user_id, how, ip, occurred_at)"
                f" VALUES (%s, %s, 'form', %s, {moment})",
                *(list_id, owner.user_id, ip, age),
            )
            stack.query(
                "INSERT INTO consent_claims (import_id, subscription_id, how, claimed_by, ip,"
                f" occurred_at) VALUES (%s, %s, 'form', 'file', %s, {moment})",
                *(owner.user_id, number - 100 * age, ip, age),
            )
    # Batch by batch.
    monkeypatch.setattr(purging, "_MAX_BATCH_ROWS", 2)
    old_and_young = [(ip,) for ip in (*given.values(), *given)]
    for _ in range(2):
        purging.shorten(stack.resources)
        entries = "SELECT ip FROM consent_entries WHERE user_id = %s ORDER BY id"
        assert stack.query(entries, owner.user_id) == old_and_young
        claims = "SELECT ip FROM consent_claims WHERE import_id = %s ORDER BY subscription_id"
        assert stack.query(claims, owner.user_id) == old_and_young
