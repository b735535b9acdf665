"""Tests that account recovery revokes an intruder's sessions, tokens, keys and endpoints."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from core.ids import PersonId
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.access import sessions
from services.access.sessions import lock_person
from services.accounts import accounts
from tests.support.http.replies import data
from tests.support.http.webhook_receiver import new_endpoint
from tests.support.people.oauth import Person, Program, register
from tests.support.people.visiting import (
    OTHER_PASSWORD,
    PASSWORD,
    SESSION_COOKIE,
    Visitor,
    new_address,
    new_visitor,
    read_hidden_fields,
    user_id_of,
)
from tests.support.senders.own_senders import new_sender

FORGOTTEN = "/password/forgotten"
INSERT_REQUEST = """
INSERT INTO api_requests (key_id, occurred_at, id, method, route, status, request_id, milliseconds)
VALUES (%s, now(), 1, 'GET', '/lists', 200, 'before the reset', 1)
"""


@dataclass
class Intruder:
    """An intruder who has logged in to a person's account and created credentials for it."""

    session: Visitor
    program: Program
    tokens: dict[str, Any]
    key: dict[str, Any]
    # The intruder's second API key, which the intruder created with the first API key, ``key``.
    second_key: dict[str, Any]

    def is_accepted(self, secret: str) -> bool:
        return self.session.stack.is_accepted(secret)

    def can_refresh(self) -> bool:
        return self.program.refresh(self.tokens["refresh_token"]).status_code == 200

    def valid_credentials(self) -> set[str]:
        is_valid = {
            "session": self.session.is_logged_in(),
            "access token": self.is_accepted(self.tokens["access_token"]),
            "key": self.is_accepted(self.key["key"]),
            "second key": self.is_accepted(self.second_key["key"]),
        }
        return {name for name, works in is_valid.items() if works}


@pytest.fixture
def own_key(stack: Stack, email: str) -> str:
    """An API key that the account's owner created before an attacker logged in."""
    return stack.create_key(user_id_of(stack, email))


@pytest.fixture
def intruder(stack: Stack, email: str, own_key: str) -> Iterator[Intruder]:
    with new_visitor(stack) as session:
        session.log_in(email)
        owner = Owner(user_id_of(stack, email), email, own_key)
        program = register(stack)
        tokens = program.tokens(Person(stack, owner, session.client))
        origin = {"Origin": stack.api_url}
        reply = session.client.post("/apikeys", json={"name": "mine now"}, headers=origin)
        key = data(reply)
        with stack.client(key["key"]) as client:
            second_key = data(client.post("/apikeys", json={"name": "and this"}))
        yield Intruder(session, program, tokens, key, second_key)


@pytest.fixture
def recovering_owner(stack: Stack) -> Iterator[Visitor]:
    """A browser of the account's owner, who is not logged in yet."""
    with new_visitor(stack) as visitor:
        yield visitor


def reset_password(recovering_owner: Visitor, email: str, *unticked: str) -> httpx2.Response:
    """Reset the password with the mailed link.

    ``unticked``: the names of the form's checkboxes that the person unticks.
    """
    recovering_owner.fill_in(FORGOTTEN, email=email)
    link = recovering_owner.mailed_path(email, "Choose a new password")
    page = recovering_owner.get(link)
    ticked = dict.fromkeys(find_checkboxes(page, "checked") - set(unticked), "on")
    return recovering_owner.fill_in(link, password=OTHER_PASSWORD, **ticked)


def find_checkboxes(page: httpx2.Response, state: str = "") -> set[str]:
    """Return the names of all ticked checkboxes of a page, or of all unticked ones.

    ``state``: ``checked`` for the ticked checkboxes, or an empty string for the unticked ones.
    """
    return set(re.findall(f'type="checkbox" name="([^"]+)" ?{state}>', page.text))


def test_password_reset_revokes_sessions_tokens_and_keys_of_an_intruder(
    intruder: Intruder, recovering_owner: Visitor, email: str, own_key: str
) -> None:
    everything = {"session", "access token", "key", "second key"}
    assert intruder.valid_credentials() == everything
    assert reset_password(recovering_owner, email).status_code == 303
    assert intruder.valid_credentials() == set()
    assert not intruder.can_refresh()
    assert not intruder.is_accepted(own_key)
    assert recovering_owner.is_logged_in()


def test_password_reset_keeps_only_keys_that_the_person_unticked(
    stack: Stack, intruder: Intruder, recovering_owner: Visitor, email: str, own_key: str
) -> None:
    [(kept_key_id,)] = stack.query(
        "SELECT id FROM api_keys WHERE user_id = %s AND name = 'test'", user_id_of(stack, email)
    )
    recovering_owner.fill_in(FORGOTTEN, email=email)
    link = recovering_owner.mailed_path(email, "Choose a new password")
    page = recovering_owner.get(link)
    ticked = find_checkboxes(page, "checked")
    assert {f"end.{kept_key_id}", f"end.{intruder.key['id']}"} <= ticked
    assert "mine now" in page.text
    assert "never used" in page.text
    for key_id in (kept_key_id, intruder.key["id"]):
        stack.query(INSERT_REQUEST, key_id)
    # The intruder creates another key while the person reads the page.
    late_key = stack.create_key(user_id_of(stack, email))
    form = {**read_hidden_fields(page), **dict.fromkeys(ticked - {f"end.{kept_key_id}"}, "on")}
    recovering_owner.client.post(link, data={**form, "password": OTHER_PASSWORD})
    assert intruder.valid_credentials() == set()
    assert intruder.is_accepted(own_key)
    assert not intruder.is_accepted(late_key)
    recorded = stack.query(
        "SELECT key_id FROM api_requests WHERE request_id = 'before the reset' AND key_id IN %s",
        (kept_key_id, intruder.key["id"]),
    )
    assert recorded == [(kept_key_id,)]


def test_password_reset_ends_webhook_endpoints_except_unticked_ones(
    stack: Stack, intruder: Intruder, recovering_owner: Visitor, email: str, own_key: str
) -> None:
    with stack.client(own_key) as client:
        own_endpoint = new_endpoint(client, "http://127.0.0.1:9/own")
    with stack.client(intruder.key["key"]) as client:
        intruders_endpoint = new_endpoint(client, "http://127.0.0.1:9/theirs")
    assert (
        reset_password(recovering_owner, email, f"end_endpoint.{own_endpoint['id']}").status_code
        == 303
    )
    states = {
        each["id"]: each["state"] for each in data(recovering_owner.get("/webhook-endpoints"))
    }
    assert states == {own_endpoint["id"]: "active", intruders_endpoint["id"]: "ended"}


def test_password_reset_deletes_senders_except_unticked_ones(
    intruder: Intruder, recovering_owner: Visitor, email: str, own_key: str, stack: Stack
) -> None:
    with stack.client(own_key) as client:
        own_sender = new_sender(client)
    with stack.client(intruder.key["key"]) as client:
        new_sender(client)
    assert (
        reset_password(recovering_owner, email, f"end_sender.{own_sender['id']}").status_code == 303
    )
    assert [each["id"] for each in data(recovering_owner.get("/senders"))] == [own_sender["id"]]


def test_rejected_password_reset_form_keeps_the_selection_of_keys(
    intruder: Intruder, recovering_owner: Visitor, email: str
) -> None:
    recovering_owner.fill_in(FORGOTTEN, email=email)
    link = recovering_owner.mailed_path(email, "Choose a new password")
    page = recovering_owner.get(link)
    ticked_box = f"end.{intruder.key['id']}"
    rejected_page = recovering_owner.client.post(
        link, data={**read_hidden_fields(page), "password": "short", ticked_box: "on"}
    )
    assert rejected_page.status_code == 422
    assert find_checkboxes(rejected_page, "checked") == {ticked_box}
    assert intruder.valid_credentials() == {"session", "access token", "key", "second key"}


def test_password_change_offers_to_revoke_keys_and_grants(
    intruder: Intruder, recovering_owner: Visitor, email: str, own_key: str
) -> None:
    recovering_owner.log_in(email)
    page = recovering_owner.get("/account/password")
    assert "Ledger reader" in page.text
    assert find_checkboxes(page, "checked") == set()
    unticked_boxes = find_checkboxes(page)
    assert {"end_grants", f"end.{intruder.key['id']}"} <= unticked_boxes
    passwords = {"current": PASSWORD, "password": OTHER_PASSWORD}
    assert recovering_owner.fill_in("/account/password", **passwords).status_code == 303
    assert intruder.valid_credentials() == {"access token", "key", "second key"}
    passwords = {"current": OTHER_PASSWORD, "password": PASSWORD}
    ticked = {"end_grants": "on", f"end.{intruder.key['id']}": "on"}
    assert recovering_owner.fill_in("/account/password", **passwords, **ticked).status_code == 303
    # A key is revoked together with the key that created it.
    assert intruder.valid_credentials() == set()
    assert intruder.is_accepted(own_key)
    assert recovering_owner.is_logged_in()


def test_password_change_cannot_revoke_keys_of_another_person(
    stack: Stack, recovering_owner: Visitor, email: str
) -> None:
    recovering_owner.log_in(email)
    other_owner = stack.create_owner()
    [(key_id,)] = stack.query("SELECT id FROM api_keys WHERE user_id = %s", other_owner.user_id)
    form = {"current": PASSWORD, "password": OTHER_PASSWORD, f"end.{key_id}": "on"}
    assert recovering_owner.fill_in("/account/password", **form).status_code == 404
    with stack.client(other_owner.key) as client:
        data(client.get("/users/me"))
    assert (
        recovering_owner.fill_in(
            "/account/password", current=PASSWORD, password=PASSWORD
        ).status_code
        == 303
    )


def test_intruders_browser_triggers_new_browser_mail_after_password_reset(
    stack: Stack, intruder: Intruder, recovering_owner: Visitor, email: str
) -> None:
    count_mails = "SELECT count(*) FROM account_mails WHERE email = %s AND kind = 'new_browser'"
    mails_before_login = stack.query(count_mails, email)
    intruder.session.client.cookies.delete(SESSION_COOKIE)
    assert intruder.session.log_in(email).status_code == 303
    assert stack.query(count_mails, email) == mails_before_login
    reset_password(recovering_owner, email)
    [(before,)] = stack.query(count_mails, email)
    assert isinstance(before, int)
    intruder.session.client.cookies.delete(SESSION_COOKIE)
    assert intruder.session.log_in(email, OTHER_PASSWORD).status_code == 303
    assert stack.query(count_mails, email) == [(before + 1,)]
    # Pressroom knows the browser in which the person reset the password, so a login with this
    # browser triggers no mail.
    recovering_owner.client.cookies.delete(SESSION_COOKIE)
    assert recovering_owner.log_in(email, OTHER_PASSWORD).status_code == 303
    assert stack.query(count_mails, email) == [(before + 1,)]


def change_address(visitor: Visitor, new_email: str) -> None:
    visitor.fill_in("/account/email", email=new_email, current=PASSWORD)
    reply = visitor.fill_in(visitor.mailed_path(new_email, "Confirm your new address"))
    assert reply.status_code == 303, reply.text


def test_undo_link_at_the_old_address_recovers_the_account(
    stack: Stack, intruder: Intruder, recovering_owner: Visitor, email: str
) -> None:
    user_id = user_id_of(stack, email)
    change_address(intruder.session, new_address())
    undo = recovering_owner.mailed_path(email, "The address of your account was changed")
    # Before the person undoes the address change, a sign-up to a list creates another user with the
    # old address. The existence of this other user must not prevent the person from undoing the
    # address change.
    with stack.resources.unit_of_work() as uow:
        accounts.find_or_create_person(uow, email)
    reply = recovering_owner.fill_in(undo)
    assert intruder.valid_credentials() == set()
    assert not intruder.can_refresh()
    assert user_id_of(stack, email) == user_id
    # Undoing the address change makes the old password invalid, because the intruder knows this
    # password. The person must then choose a new password.
    with new_visitor(stack) as visitor:
        assert visitor.log_in(email).status_code == 403
    password_path = reply.headers["location"].removeprefix(stack.api_url)
    assert recovering_owner.fill_in(password_path, password=OTHER_PASSWORD).status_code == 303
    assert data(recovering_owner.get("/users/me"))["email"] == email
    assert recovering_owner.get(undo).status_code == 403


def test_undo_link_for_address_change_expires_after_three_days(
    stack: Stack, recovering_owner: Visitor, email: str
) -> None:
    recovering_owner.log_in(email)
    new_email = new_address()
    change_address(recovering_owner, new_email)
    undo = recovering_owner.mailed_path(email, "The address of your account was changed")
    age = "UPDATE mailed_links SET expires_at = expires_at - %s WHERE user_id = %s"
    assert recovering_owner.get(undo).status_code == 200
    stack.query(age, timedelta(hours=71), user_id_of(stack, new_email))
    assert recovering_owner.get(undo).status_code == 200
    stack.query(age, timedelta(hours=1), user_id_of(stack, new_email))
    assert recovering_owner.get(undo).status_code == 403
    assert recovering_owner.client.post(undo, headers={"Origin": stack.api_url}).status_code == 403
    assert data(recovering_owner.get("/users/me"))["email"] == new_email


@pytest.mark.parametrize("intruder_is_first", [True, False])
def test_intruder_cannot_undo_the_undo_of_an_address_change(
    stack: Stack, intruder: Intruder, recovering_owner: Visitor, email: str, intruder_is_first: bool
) -> None:
    """The intruder changes the account's address twice.

    After the second change, Pressroom mails an undo link to the first new address, which belongs to
    the intruder.
    """
    first_new_email = new_address()
    second_new_email = new_address()
    subject = "The address of your account was changed"
    change_address(intruder.session, first_new_email)
    first_undo = recovering_owner.mailed_path(email, subject)
    change_address(intruder.session, second_new_email)
    second_undo = recovering_owner.mailed_path(first_new_email, subject)
    second_undo_form = read_hidden_fields(recovering_owner.get(second_undo))
    # The intruder may undo the second address change before the owner undoes the first address
    # change.
    if intruder_is_first:
        assert intruder.session.fill_in(second_undo).status_code == 303
    assert recovering_owner.fill_in(first_undo).status_code == 303
    assert user_id_of(stack, email)
    assert recovering_owner.get(second_undo).status_code == 403
    reply = recovering_owner.client.post(second_undo, data=second_undo_form)
    assert reply.status_code == 403


def test_key_creation_fails_if_its_session_is_revoked_concurrently(
    stack: Stack, recovering_owner: Visitor, email: str
) -> None:
    """Creating an API key waits while an account recovery locks the person's row.

    When the recovery releases the lock, creating the API key fails, because the recovery has
    revoked the session that sent the request.
    """
    recovering_owner.log_in(email)
    user_id = user_id_of(stack, email)
    origin = {"Origin": stack.api_url}
    with ThreadPoolExecutor(1) as pool:
        with stack.resources.unit_of_work() as uow:
            lock_person(uow, PersonId(user_id))
            key_call = pool.submit(
                recovering_owner.client.post, "/apikeys", json={"name": "k"}, headers=origin
            )
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            eventually(lambda: stack.query(waiting), what="the request's wait")
            sessions.revoke_sessions(uow, PersonId(user_id))
        assert key_call.result().status_code == 401
    assert stack.query("SELECT 1 FROM api_keys WHERE user_id = %s", user_id) == []
