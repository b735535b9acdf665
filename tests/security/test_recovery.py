"""Taking an account back throws out whoever else got in: sessions, programs, tokens, keys."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx2
import pytest

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
    SESSION,
    Visitor,
    a_visitor,
    hidden,
    new_address,
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
    """Had the person's session for a minute, and made all that outlasts one."""

    session: Visitor
    program: Program
    tokens: dict[str, Any]
    key: dict[str, Any]
    # Made by that key.
    second_key: dict[str, Any]

    def opens(self, secret: str) -> bool:
        return self.session.stack.is_accepted(secret)

    def refreshes(self) -> bool:
        return self.program.refresh(self.tokens["refresh_token"]).status_code == 200

    def ways_in(self) -> set[str]:
        tried = {
            "session": self.session.is_in(),
            "access token": self.opens(self.tokens["access_token"]),
            "key": self.opens(self.key["key"]),
            "second key": self.opens(self.second_key["key"]),
        }
        return {name for name, works in tried.items() if works}


@pytest.fixture
def own_key(stack: Stack, email: str) -> str:
    """An API key that the account's owner created before an attacker logged in."""
    return stack.create_key(user_id_of(stack, email))


@pytest.fixture
def intruder(stack: Stack, email: str, own_key: str) -> Iterator[Intruder]:
    with a_visitor(stack) as session:
        session.log_in(email)
        owner = Owner(user_id_of(stack, email), email, own_key)
        program = register(stack)
        tokens = program.tokens(Person(stack, owner, session.client))
        origin = {"Origin": stack.api_url}
        made = session.client.post("/apikeys", json={"name": "mine now"}, headers=origin)
        key = data(made)
        with stack.client(key["key"]) as client:
            second = data(client.post("/apikeys", json={"name": "and this"}))
        yield Intruder(session, program, tokens, key, second)


@pytest.fixture
def recovering_owner(stack: Stack) -> Iterator[Visitor]:
    """A browser of the account's owner, who is not logged in yet."""
    with a_visitor(stack) as visitor:
        yield visitor


def reset(recovering_owner: Visitor, email: str, *unticked: str) -> httpx2.Response:
    """Press the button, with these boxes unticked."""
    recovering_owner.fill_in(FORGOTTEN, email=email)
    link = recovering_owner.mailed_path(email, "Choose a new password")
    ticked = dict.fromkeys(boxes(recovering_owner.get(link), "checked") - set(unticked), "on")
    return recovering_owner.fill_in(link, password=OTHER_PASSWORD, **ticked)


def boxes(shown: httpx2.Response, state: str = "") -> set[str]:
    """The names of the boxes of a page that are ticked ("checked"), or are not."""
    return set(re.findall(f'type="checkbox" name="([^"]+)" ?{state}>', shown.text))


def test_password_reset_revokes_sessions_tokens_and_keys_of_an_intruder(
    intruder: Intruder, recovering_owner: Visitor, email: str, own_key: str
) -> None:
    everything = {"session", "access token", "key", "second key"}
    assert intruder.ways_in() == everything
    assert reset(recovering_owner, email).status_code == 303
    assert intruder.ways_in() == set()
    assert not intruder.refreshes()
    assert not intruder.opens(own_key)
    assert recovering_owner.is_in()


def test_password_reset_keeps_only_keys_that_the_person_unticked(
    stack: Stack, intruder: Intruder, recovering_owner: Visitor, email: str, own_key: str
) -> None:
    [(kept,)] = stack.query(
        "SELECT id FROM api_keys WHERE user_id = %s AND name = 'test'", user_id_of(stack, email)
    )
    recovering_owner.fill_in(FORGOTTEN, email=email)
    link = recovering_owner.mailed_path(email, "Choose a new password")
    shown = recovering_owner.get(link)
    ticked = boxes(shown, "checked")
    assert {f"end.{kept}", f"end.{intruder.key['id']}"} <= ticked
    assert "mine now" in shown.text
    assert "never used" in shown.text
    for key_id in (kept, intruder.key["id"]):
        stack.query(INSERT_REQUEST, key_id)
    # One more, made while the person reads the page.
    late = stack.create_key(user_id_of(stack, email))
    form = {**hidden(shown), **dict.fromkeys(ticked - {f"end.{kept}"}, "on")}
    recovering_owner.client.post(link, data={**form, "password": OTHER_PASSWORD})
    assert intruder.ways_in() == set()
    assert intruder.opens(own_key)
    assert not intruder.opens(late)
    recorded = stack.query(
        "SELECT key_id FROM api_requests WHERE request_id = 'before the reset' AND key_id IN %s",
        (kept, intruder.key["id"]),
    )
    assert recorded == [(kept,)]


def test_password_reset_ends_webhook_endpoints_except_unticked_ones(
    stack: Stack, intruder: Intruder, recovering_owner: Visitor, email: str, own_key: str
) -> None:
    with stack.client(own_key) as client:
        own = new_endpoint(client, "http://127.0.0.1:9/own")
    with stack.client(intruder.key["key"]) as client:
        theirs = new_endpoint(client, "http://127.0.0.1:9/theirs")
    assert reset(recovering_owner, email, f"end_endpoint.{own['id']}").status_code == 303
    states = {
        each["id"]: each["state"] for each in data(recovering_owner.get("/webhook-endpoints"))
    }
    assert states == {own["id"]: "active", theirs["id"]: "ended"}


def test_password_reset_deletes_senders_except_unticked_ones(
    intruder: Intruder, recovering_owner: Visitor, email: str, own_key: str, stack: Stack
) -> None:
    with stack.client(own_key) as client:
        own = new_sender(client)
    with stack.client(intruder.key["key"]) as client:
        new_sender(client)
    assert reset(recovering_owner, email, f"end_sender.{own['id']}").status_code == 303
    assert [each["id"] for each in data(recovering_owner.get("/senders"))] == [own["id"]]


def test_rejected_password_reset_form_keeps_the_selection_of_keys(
    intruder: Intruder, recovering_owner: Visitor, email: str
) -> None:
    recovering_owner.fill_in(FORGOTTEN, email=email)
    link = recovering_owner.mailed_path(email, "Choose a new password")
    shown = recovering_owner.get(link)
    ended = f"end.{intruder.key['id']}"
    again = recovering_owner.client.post(
        link, data={**hidden(shown), "password": "short", ended: "on"}
    )
    assert again.status_code == 422
    assert boxes(again, "checked") == {ended}
    assert intruder.ways_in() == {"session", "access token", "key", "second key"}


def test_password_change_offers_to_revoke_keys_and_grants(
    intruder: Intruder, recovering_owner: Visitor, email: str, own_key: str
) -> None:
    recovering_owner.log_in(email)
    shown = recovering_owner.get("/account/password")
    assert "Ledger reader" in shown.text
    assert boxes(shown, "checked") == set()
    offered = boxes(shown)
    assert {"end_grants", f"end.{intruder.key['id']}"} <= offered
    passwords = {"current": PASSWORD, "password": OTHER_PASSWORD}
    assert recovering_owner.fill_in("/account/password", **passwords).status_code == 303
    assert intruder.ways_in() == {"access token", "key", "second key"}
    passwords = {"current": OTHER_PASSWORD, "password": PASSWORD}
    ticked = {"end_grants": "on", f"end.{intruder.key['id']}": "on"}
    assert recovering_owner.fill_in("/account/password", **passwords, **ticked).status_code == 303
    # The second key ends with the one that made it.
    assert intruder.ways_in() == set()
    assert intruder.opens(own_key)
    assert recovering_owner.is_in()


def test_password_change_cannot_revoke_keys_of_another_person(
    stack: Stack, recovering_owner: Visitor, email: str
) -> None:
    recovering_owner.log_in(email)
    other = stack.create_owner()
    [(key_id,)] = stack.query("SELECT id FROM api_keys WHERE user_id = %s", other.user_id)
    form = {"current": PASSWORD, "password": OTHER_PASSWORD, f"end.{key_id}": "on"}
    assert recovering_owner.fill_in("/account/password", **form).status_code == 404
    with stack.client(other.key) as client:
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
    mailed = "SELECT count(*) FROM account_mails WHERE email = %s AND kind = 'new_browser'"
    told = stack.query(mailed, email)
    intruder.session.client.cookies.delete(SESSION)
    assert intruder.session.log_in(email).status_code == 303
    assert stack.query(mailed, email) == told
    reset(recovering_owner, email)
    [(before,)] = stack.query(mailed, email)
    assert isinstance(before, int)
    intruder.session.client.cookies.delete(SESSION)
    assert intruder.session.log_in(email, OTHER_PASSWORD).status_code == 303
    assert stack.query(mailed, email) == [(before + 1,)]
    # The browser in which the person took the account back is known.
    recovering_owner.client.cookies.delete(SESSION)
    assert recovering_owner.log_in(email, OTHER_PASSWORD).status_code == 303
    assert stack.query(mailed, email) == [(before + 1,)]


def change_address(visitor: Visitor, new: str) -> None:
    visitor.fill_in("/account/email", email=new, current=PASSWORD)
    reply = visitor.fill_in(visitor.mailed_path(new, "Confirm your new address"))
    assert reply.status_code == 303, reply.text


def test_undo_link_at_the_old_address_recovers_the_account(
    stack: Stack, intruder: Intruder, recovering_owner: Visitor, email: str
) -> None:
    user_id, theirs = user_id_of(stack, email), new_address()
    change_address(intruder.session, theirs)
    undo = recovering_owner.mailed_path(email, "The address of your account was changed")
    # A stranger who subscribes the address meanwhile can't keep it.
    with stack.resources.unit_of_work() as uow:
        accounts.find_or_create_person(uow, email)
    reply = recovering_owner.fill_in(undo)
    assert intruder.ways_in() == set()
    assert not intruder.refreshes()
    assert user_id_of(stack, email) == user_id
    # The intruder knows the password, which is none any more; the person chooses a new one.
    with a_visitor(stack) as again:
        assert again.log_in(email).status_code == 403
    choosing = reply.headers["location"].removeprefix(stack.api_url)
    assert recovering_owner.fill_in(choosing, password=OTHER_PASSWORD).status_code == 303
    assert data(recovering_owner.get("/users/me"))["email"] == email
    assert recovering_owner.get(undo).status_code == 403


def test_undo_link_for_address_change_expires_after_three_days(
    stack: Stack, recovering_owner: Visitor, email: str
) -> None:
    recovering_owner.log_in(email)
    new = new_address()
    change_address(recovering_owner, new)
    undo = recovering_owner.mailed_path(email, "The address of your account was changed")
    age = "UPDATE mailed_links SET expires_at = expires_at - %s WHERE user_id = %s"
    assert recovering_owner.get(undo).status_code == 200
    stack.query(age, timedelta(hours=71), user_id_of(stack, new))
    assert recovering_owner.get(undo).status_code == 200
    stack.query(age, timedelta(hours=1), user_id_of(stack, new))
    assert recovering_owner.get(undo).status_code == 403
    assert recovering_owner.client.post(undo, headers={"Origin": stack.api_url}).status_code == 403
    assert data(recovering_owner.get("/users/me"))["email"] == new


@pytest.mark.parametrize("intruder_is_first", [True, False])
def test_intruder_cannot_undo_the_undo_of_an_address_change(
    stack: Stack, intruder: Intruder, recovering_owner: Visitor, email: str, intruder_is_first: bool
) -> None:
    """Not by an address between, whose own link of undoing the intruder has."""
    between, last = new_address(), new_address()
    change_address(intruder.session, between)
    first = recovering_owner.mailed_path(email, "The address of your account was changed")
    change_address(intruder.session, last)
    second = recovering_owner.mailed_path(between, "The address of your account was changed")
    shown = hidden(recovering_owner.get(second))
    # The first change is undone after the second one was, or before, and for good.
    if intruder_is_first:
        assert intruder.session.fill_in(second).status_code == 303
    assert recovering_owner.fill_in(first).status_code == 303
    assert user_id_of(stack, email)
    assert recovering_owner.get(second).status_code == 403
    assert recovering_owner.client.post(second, data=shown).status_code == 403


def test_key_creation_fails_if_its_session_is_revoked_concurrently(
    stack: Stack, recovering_owner: Visitor, email: str
) -> None:
    """A recovery and the making of a key take turns: the key is ended, or is never made."""
    recovering_owner.log_in(email)
    user_id = user_id_of(stack, email)
    origin = {"Origin": stack.api_url}
    with ThreadPoolExecutor(1) as pool:
        with stack.resources.unit_of_work() as uow:
            lock_person(uow, user_id)
            made = pool.submit(
                recovering_owner.client.post, "/apikeys", json={"name": "k"}, headers=origin
            )
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            eventually(lambda: stack.query(waiting), what="the request's wait")
            sessions.revoke_sessions(uow, user_id)
        assert made.result().status_code == 401
    assert stack.query("SELECT 1 FROM api_keys WHERE user_id = %s", user_id) == []
