"""A person's own account: where they are logged in, their password, their address."""

import re
from collections.abc import Iterator

import httpx
import pytest

from services.access import sessions
from tests.contract.replies import data, problem
from tests.stack import Stack
from tests.visiting import (
    PASSWORD,
    SESSION,
    Visitor,
    a_visitor,
    hidden,
    new_account,
    new_address,
    user_id_of,
)

OTHER_PASSWORD = "an altogether other one"
CONFIRM = "Confirm your new address"


@pytest.fixture
def email(stack: Stack) -> str:
    return new_account(stack)


def logged_in(stack: Stack, visitor: Visitor, email: str, browser: str | None = None) -> None:
    """As after a login, without its time."""
    with stack.resources.unit_of_work() as uow:
        keyring = stack.resources.keyring
        value = sessions.begin(uow, keyring, user_id_of(stack, email), browser=browser)
    visitor.client.cookies.set(SESSION, value, domain="127.0.0.1", path="/")


@pytest.fixture
def member(stack: Stack, email: str) -> Iterator[Visitor]:
    with a_visitor(stack) as visitor:
        logged_in(stack, visitor, email)
        yield visitor


@pytest.fixture
def elsewhere(stack: Stack, email: str) -> Iterator[Visitor]:
    """The same person in another browser."""
    with a_visitor(stack) as visitor:
        logged_in(stack, visitor, email, "Firefox on Linux")
        yield visitor


@pytest.mark.parametrize(
    "path",
    [
        "/account",
        "/account/password",
        "/account/email",
        "/account/email/confirm?token=x",
        "/account/email/merge?token=x",
    ],
)
def test_pages_of_an_account_ask_for_a_login_first(stack: Stack, path: str) -> None:
    with a_visitor(stack) as visitor:
        reply = visitor.get(path)
        assert reply.status_code == 303
        assert reply.headers["location"].startswith(f"{stack.api_url}/login?next=%2Faccount")
        posted = visitor.client.post(path, data={"password": PASSWORD})
        assert posted.status_code in (303, 405)


def test_keys_open_no_page(stack: Stack, email: str) -> None:
    with stack.client(stack.new_key(user_id_of(stack, email))) as client:
        assert client.get("/account").status_code == 303


def test_sessions_are_shown_and_ended(stack: Stack, member: Visitor, elsewhere: Visitor) -> None:
    page = member.get("/account").text
    assert "Firefox on Linux" in page
    assert "127.0.0.1" not in re.sub(r'(action|href)="[^"]*"', "", page)
    [number] = re.findall(r'name="session" value="(\d+)"', page)
    form = {"csrf_token": hidden(member.get("/account"))["csrf_token"], "session": number}
    assert member.client.post("/account/sessions", data=form).status_code == 303
    assert not elsewhere.is_in()
    assert member.is_in()
    assert "Firefox on Linux" not in member.get("/account").text


def test_all_other_sessions_are_ended_at_once(member: Visitor, elsewhere: Visitor) -> None:
    token = member.csrf_token()
    form = {"csrf_token": token, "session": "others"}
    assert member.client.post("/account/sessions", data=form).status_code == 303
    assert not elsewhere.is_in()
    assert member.is_in()


def test_nobody_ends_a_session_of_somebody_else(stack: Stack, member: Visitor) -> None:
    with a_visitor(stack) as other:
        logged_in(stack, other, new_account(stack))
        [(number,)] = stack.query("SELECT max(id) FROM user_sessions")
        for wanted in (str(number), "0", "", "x", "9" * 30, "-1"):
            form = {"csrf_token": member.csrf_token(), "session": wanted}
            assert member.client.post("/account/sessions", data=form).status_code == 404
        assert other.is_in()


@pytest.mark.parametrize(
    "path", ["/logout", "/account/sessions", "/account/password", "/account/email"]
)
def test_acts_from_other_sites_are_refused(
    stack: Stack, member: Visitor, elsewhere: Visitor, path: str
) -> None:
    form = {"session": "others", "current": PASSWORD, "password": OTHER_PASSWORD}
    others = hidden(elsewhere.get("/account"))["csrf_token"]
    for token in ({}, {"csrf_token": ""}, {"csrf_token": others}):
        for headers in ({}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
            reply = member.client.post(path, data={**form, **token}, headers=headers)
            assert reply.status_code == 403
    # A token of the login's form is of another cookie.
    with a_visitor(stack) as visitor:
        anybodys = hidden(visitor.get("/login"))["csrf_token"]
        member.client.cookies.set("pressroom_form", visitor.client.cookies["pressroom_form"])
    reply = member.client.post(path, data={**form, "csrf_token": anybodys})
    assert reply.status_code == 403
    assert member.is_in()
    assert elsewhere.is_in()


# -- the password --------------------------------------------------------------------------------


def test_changing_the_password_ends_other_sessions(
    stack: Stack, member: Visitor, elsewhere: Visitor, email: str
) -> None:
    reply = member.fill_in("/account/password", current=PASSWORD, password=OTHER_PASSWORD)
    assert reply.headers["location"] == f"{stack.api_url}/account?done=password"
    assert member.is_in()
    assert not elsewhere.is_in()
    assert elsewhere.log_in(email).status_code == 403
    assert elsewhere.log_in(email, OTHER_PASSWORD).status_code == 303
    assert member.mailed(email, "Your password was changed")


def test_only_who_knows_the_password_changes_it(
    stack: Stack, member: Visitor, elsewhere: Visitor, email: str
) -> None:
    before = stack.query("SELECT password_hash FROM users WHERE email = %s", email)
    for fields in (
        {"current": "not the password", "password": OTHER_PASSWORD},
        {"current": "", "password": OTHER_PASSWORD},
        {"password": OTHER_PASSWORD},
        {"current": PASSWORD, "password": "short"},
        {"current": PASSWORD},
    ):
        reply = member.fill_in("/account/password", **fields)
        assert reply.status_code == 422
        assert 'role="alert"' in reply.text
    assert stack.query("SELECT password_hash FROM users WHERE email = %s", email) == before
    assert elsewhere.is_in()
    # A stolen session is no way to guess it either.
    stack.query("UPDATE login_attempts SET paused_until = now() + interval '1 hour'")
    reply = member.fill_in("/account/password", current=PASSWORD, password=OTHER_PASSWORD)
    assert reply.status_code == 429
    stack.query("DELETE FROM login_attempts")


# -- the address ---------------------------------------------------------------------------------


def test_an_account_goes_to_another_address(stack: Stack, member: Visitor, email: str) -> None:
    user_id = user_id_of(stack, email)
    new = new_address()
    reply = member.fill_in("/account/email", email=new.upper(), current=PASSWORD)
    assert reply.headers["location"] == f"{stack.api_url}/account/email?sent=yes"
    link = member.mailed_path(new, CONFIRM)
    with a_visitor(stack) as stranger:
        # Whoever reads that mail must be the person who asked, too.
        assert stranger.get(link).status_code == 303
        logged_in(stack, stranger, new_account(stack))
        assert stranger.get(link).status_code == 403
    assert new in member.get(link).text
    assert user_id_of(stack, email) == user_id
    assert member.fill_in(link).headers["location"] == f"{stack.api_url}/account?done=address"
    assert data(member.get("/users/me"))["email"] == new
    assert member.get(link).status_code == 403
    assert member.mailed(email, "Your account has a new address")
    with a_visitor(stack) as again:
        assert again.log_in(email).status_code == 403
        assert again.log_in(new).status_code == 303


def test_an_address_of_an_account_is_not_taken(stack: Stack, member: Visitor, email: str) -> None:
    known = new_account(stack)
    reply = member.fill_in("/account/email", email=known, current=PASSWORD)
    assert reply.headers["location"].endswith("/account/email?sent=yes")
    # Only whoever reads its mail and is logged in hears that it is taken.
    link = member.mailed_path(known, CONFIRM)
    assert member.client.post(link, data=hidden(member.get(link))).status_code == 409
    assert data(member.get("/users/me"))["email"] == email


def test_the_account_s_own_address_is_no_new_one(member: Visitor, email: str) -> None:
    member.fill_in("/account/email", email=email, current=PASSWORD)
    assert "token=" not in member.mailed(email, "This address is in use already")


def test_a_new_address_needs_the_password(stack: Stack, member: Visitor) -> None:
    new = new_address()
    assert member.fill_in("/account/email", email=new, current="wrong").status_code == 422
    assert member.fill_in("/account/email", email="x", current=PASSWORD).status_code == 422
    assert stack.query("SELECT 1 FROM account_mails WHERE email = %s", new) == []


def test_links_of_the_old_address_are_over(stack: Stack, member: Visitor, email: str) -> None:
    new = new_address()
    member.fill_in("/account/email", email=new, current=PASSWORD)
    link = member.mailed_path(new, CONFIRM)
    with a_visitor(stack) as visitor:
        visitor.fill_in("/password/forgotten", email=email)
        reset = visitor.mailed_path(email, "Choose a new password")
        assert visitor.get(reset).status_code == 200
        member.fill_in(link)
        assert visitor.get(reset).status_code == 403


def test_opt_outs_hold_for_the_old_address_too(
    stack: Stack, member: Visitor, email: str, client: httpx.Client, list_id: int
) -> None:
    origin = {"Origin": stack.api_url}
    data(member.client.post(f"/subscriptions/{list_id}/no-challenge", headers=origin))
    data(member.client.delete(f"/subscriptions/{list_id}", headers=origin))
    new = new_address()
    member.fill_in("/account/email", email=new, current=PASSWORD)
    member.fill_in(member.mailed_path(new, CONFIRM))
    path = f"/auxilia/subscriptions/{list_id}/members/add"
    data(client.post(path, json={"members": [{"email": email}, {"email": new}]}))
    rows = stack.query(
        "SELECT count(*) FROM subscriptions s JOIN users u ON u.id = s.user_id"
        " WHERE s.list_id = %s AND u.email IN (%s, %s) AND s.status = 'active'",
        list_id,
        email,
        new,
    )
    assert rows == [(0,)]


def test_me_is_read_only_by_who_is_logged_in(stack: Stack, member: Visitor) -> None:
    assert data(member.get("/users/me"))["name"] == "Vi"
    with a_visitor(stack) as visitor:
        problem(visitor.get("/users/me"), 401, "auth.credentials_missing")
