"""A person's own account: where they are logged in, their password, their address."""

import re
from collections.abc import Iterator

import pytest

from tests.contract.replies import data
from tests.stack import Stack
from tests.visiting import (
    PASSWORD,
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
def elsewhere(stack: Stack, email: str) -> Iterator[Visitor]:
    """The same person in another browser."""
    with a_visitor(stack) as visitor:
        visitor.enter(email, browser="Firefox on Linux")
        yield visitor


@pytest.mark.parametrize(
    "path", ["/account", "/account/password", "/account/email", "/account/email/confirm?token=x"]
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


def test_sessions_are_shown_and_ended(person: Visitor, elsewhere: Visitor) -> None:
    page = person.get("/account").text
    assert "Firefox on Linux" in page
    assert "127.0.0.1" not in re.sub(r'(action|href)="[^"]*"', "", page)
    [number] = re.findall(r'name="session" value="(\d+)"', page)
    form = {"csrf_token": hidden(person.get("/account"))["csrf_token"], "session": number}
    assert person.client.post("/account/sessions", data=form).status_code == 303
    assert not elsewhere.is_in()
    assert person.is_in()
    assert "Firefox on Linux" not in person.get("/account").text


def test_all_other_sessions_are_ended_at_once(person: Visitor, elsewhere: Visitor) -> None:
    token = person.csrf_token()
    form = {"csrf_token": token, "session": "others"}
    assert person.client.post("/account/sessions", data=form).status_code == 303
    assert not elsewhere.is_in()
    assert person.is_in()


def test_nobody_ends_a_session_of_somebody_else(stack: Stack, person: Visitor) -> None:
    with a_visitor(stack) as other:
        other.enter(new_account(stack))
        [(number,)] = stack.query("SELECT max(id) FROM user_sessions")
        for wanted in (str(number), "0", "", "x", "9" * 30, "-1"):
            form = {"csrf_token": person.csrf_token(), "session": wanted}
            assert person.client.post("/account/sessions", data=form).status_code == 404
        assert other.is_in()


@pytest.mark.parametrize(
    "path", ["/logout", "/account/sessions", "/account/password", "/account/email"]
)
def test_actions_from_other_sites_are_refused(
    stack: Stack, person: Visitor, elsewhere: Visitor, path: str
) -> None:
    form = {"session": "others", "current": PASSWORD, "password": OTHER_PASSWORD}
    others = hidden(elsewhere.get("/account"))["csrf_token"]
    for token in ({}, {"csrf_token": ""}, {"csrf_token": others}):
        for headers in ({}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
            reply = person.client.post(path, data={**form, **token}, headers=headers)
            assert reply.status_code == 403
    # A token of the login's form is of another cookie.
    with a_visitor(stack) as visitor:
        anybodys = hidden(visitor.get("/login"))["csrf_token"]
        person.client.cookies.set("pressroom_form", visitor.client.cookies["pressroom_form"])
    reply = person.client.post(path, data={**form, "csrf_token": anybodys})
    assert reply.status_code == 403
    assert person.is_in()
    assert elsewhere.is_in()


def test_only_who_knows_the_password_changes_it(
    stack: Stack, person: Visitor, elsewhere: Visitor, email: str
) -> None:
    before = stack.query("SELECT password_hash FROM users WHERE email = %s", email)
    for fields in (
        {"current": "not the password", "password": OTHER_PASSWORD},
        {"current": "", "password": OTHER_PASSWORD},
        {"password": OTHER_PASSWORD},
        {"current": PASSWORD, "password": "short"},
        {"current": PASSWORD},
    ):
        reply = person.fill_in("/account/password", **fields)
        assert reply.status_code == 422
        assert 'role="alert"' in reply.text
    assert stack.query("SELECT password_hash FROM users WHERE email = %s", email) == before
    assert elsewhere.is_in()
    # A stolen session is no way to guess it either.
    stack.query("UPDATE login_attempts SET paused_until = now() + interval '1 hour'")
    reply = person.fill_in("/account/password", current=PASSWORD, password=OTHER_PASSWORD)
    assert reply.status_code == 429
    stack.query("DELETE FROM login_attempts")


def test_an_account_goes_to_another_address(stack: Stack, person: Visitor, email: str) -> None:
    user_id = user_id_of(stack, email)
    new = new_address()
    reply = person.fill_in("/account/email", email=new.upper(), current=PASSWORD)
    assert reply.headers["location"] == f"{stack.api_url}/account/email?sent=yes"
    link = person.mailed_path(new, CONFIRM)
    with a_visitor(stack) as stranger:
        # Whoever reads that mail must be the person who asked, too.
        assert stranger.get(link).status_code == 303
        stranger.enter(new_account(stack))
        assert stranger.get(link).status_code == 403
    assert new in person.get(link).text
    assert user_id_of(stack, email) == user_id
    assert person.fill_in(link).headers["location"] == f"{stack.api_url}/account?done=address"
    assert data(person.get("/users/me"))["email"] == new
    assert person.get(link).status_code == 403
    assert person.mailed(email, "Your account has a new address")
    with a_visitor(stack) as again:
        assert again.log_in(email).status_code == 403
        assert again.log_in(new).status_code == 303


def test_the_account_s_own_address_is_no_new_one(person: Visitor, email: str) -> None:
    person.fill_in("/account/email", email=email, current=PASSWORD)
    assert "token=" not in person.mailed(email, "This address is in use already")


def test_a_new_address_needs_the_password(stack: Stack, person: Visitor) -> None:
    new = new_address()
    assert person.fill_in("/account/email", email=new, current="wrong").status_code == 422
    assert person.fill_in("/account/email", email="x", current=PASSWORD).status_code == 422
    assert stack.query("SELECT 1 FROM account_mails WHERE email = %s", new) == []


def test_links_of_the_old_address_are_over(stack: Stack, person: Visitor, email: str) -> None:
    new = new_address()
    person.fill_in("/account/email", email=new, current=PASSWORD)
    link = person.mailed_path(new, CONFIRM)
    with a_visitor(stack) as visitor:
        visitor.fill_in("/password/forgotten", email=email)
        reset = visitor.mailed_path(email, "Choose a new password")
        assert visitor.get(reset).status_code == 200
        person.fill_in(link)
        assert visitor.get(reset).status_code == 403
