"""Tests of accounts that people register with mailed links, and of the account pages."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.accounts.account_mails import MAX_MAILS_PER_ADDRESS
from tests.support.http.pages import read_text
from tests.support.http.replies import data
from tests.support.people.consoles import heading
from tests.support.people.visiting import (
    OTHER_PASSWORD,
    PASSWORD,
    SESSION_COOKIE,
    Visitor,
    new_account,
    new_address,
    new_visitor,
    read_hidden_fields,
    user_id_of,
)

FINISH_SUBJECT = "Finish creating your account"
EXISTS_SUBJECT = "You already have an account"
RESET_SUBJECT = "Choose a new password"
CHANGED_SUBJECT = "Your password was changed"


def list_people(stack: Stack, email: str) -> list[tuple[object, ...]]:
    return stack.query("SELECT name, password_hash IS NOT NULL FROM users WHERE email = %s", email)


def request_registration_link(visitor: Visitor, email: str) -> str:
    """Request an account, and return the path of the mailed registration link."""
    assert visitor.fill_in("/register", email=email).status_code == 303
    return visitor.mailed_path(email, FINISH_SUBJECT)


def test_person_registers_with_a_mailed_link_and_can_log_in_elsewhere(
    stack: Stack, visitor: Visitor
) -> None:
    email = new_address()
    reply = visitor.fill_in("/register", email=f" {email.upper()} ")
    assert (reply.status_code, reply.headers["location"]) == (303, "?sent=yes")
    sent_page = visitor.get("/register", sent="yes").text
    assert heading(sent_page) == "Check your e-mail"
    # The link "request a new link" removes the query ``sent=yes`` from the URL, so that the browser
    # shows the registration form again.
    assert '<a href="?">request a new link</a>' in sent_page
    link = visitor.mailed_path(email, FINISH_SUBJECT)
    # Opening the registration link creates no account, whichever program opens it.
    for _ in range(2):
        assert email in read_text(visitor.get(link))
        assert visitor.client.head(link).status_code == 200
    assert list_people(stack, email) == []
    reply_to_form = visitor.fill_in(link, name=" Vita ", password=PASSWORD)
    assert reply_to_form.headers["location"] == f"{stack.api_url}/console"
    assert list_people(stack, email) == [("Vita", True)]
    me = data(visitor.get("/users/me"))
    assert (me["email"], me["name"], me["plan"]) == (email, "Vita", "free")
    assert visitor.get(link).status_code == 403
    with new_visitor(stack) as other_visitor:
        assert other_visitor.log_in(email).status_code == 303


def test_registration_secret_and_password_are_never_stored_in_plain_text_or_logged(
    stack: Stack, visitor: Visitor
) -> None:
    email = new_address()
    secret = request_registration_link(visitor, email).partition("token=")[2]
    for table in ("mailed_links", "account_mails", "jobs"):
        rows = stack.query(f"SELECT row_to_json(t)::text FROM {table} t")
        assert secret not in str(rows)
    visitor.fill_in(f"/register/confirm?token={secret}", password=PASSWORD)
    for process in stack.processes:
        log = process.log.read_text()
        assert secret not in log
        assert PASSWORD not in log


def test_registering_an_existing_account_only_mails_a_notice(
    stack: Stack, visitor: Visitor
) -> None:
    email = new_account(stack)
    reply = visitor.fill_in("/register", email=email)
    assert (reply.status_code, reply.headers["location"]) == (303, "?sent=yes")
    text = visitor.mailed(email, EXISTS_SUBJECT)
    assert f"{stack.api_url}/password/forgotten" in text
    assert "token=" not in text


def test_registering_a_known_reader_reuses_their_user_id(stack: Stack, visitor: Visitor) -> None:
    email = new_account(stack, password=None, name="")
    [(user_id,)] = stack.query("SELECT id FROM users WHERE email = %s", email)
    visitor.fill_in(request_registration_link(visitor, email), name="Vi", password=PASSWORD)
    assert data(visitor.get("/users/me"))["id"] == user_id


def test_registration_form_cannot_preset_a_password_for_another_person(
    stack: Stack, visitor: Visitor
) -> None:
    email = new_account(stack, password=None)
    form = {"email": email, "password": "attackers own", "name": "Attacker"}
    visitor.fill_in("/register", **form)
    link = visitor.mailed_path(email, FINISH_SUBJECT)
    assert visitor.log_in(email, "attackers own").status_code == 403
    with new_visitor(stack) as person:
        person.fill_in(link, password=PASSWORD)
    assert visitor.log_in(email, "attackers own").status_code == 403
    assert list_people(stack, email) == [("Vi", True)]


def test_registration_link_creates_only_one_account_and_revokes_earlier_links(
    stack: Stack, visitor: Visitor
) -> None:
    email = new_address()
    link = request_registration_link(visitor, email)
    with new_visitor(stack) as other_visitor:
        other_visitor.fill_in("/register", email=email)
        second_link = other_visitor.mailed_path(email, FINISH_SUBJECT, number=2)
        form = read_hidden_fields(other_visitor.get(second_link))
        visitor.fill_in(link, password=PASSWORD)
        # After the registration, no earlier link can change the password.
        for path in (link, second_link):
            reply = other_visitor.client.post(path, data={**form, "password": OTHER_PASSWORD})
            assert reply.status_code == 403
            assert SESSION_COOKIE not in other_visitor.client.cookies
        assert other_visitor.log_in(email, OTHER_PASSWORD).status_code == 403


def read_error(reply: httpx2.Response) -> str:
    """Return the error message that a page shows."""
    assert reply.status_code == 422
    [message] = re.findall(r'role="alert"[^>]*>(.*?)<', reply.text, re.DOTALL)
    return str(message)


def test_new_password_must_not_be_common_or_contain_name_or_address(visitor: Visitor) -> None:
    email = new_address()
    link = request_registration_link(visitor, email)
    local_part = email.partition("@")[0]
    for common_password in ("password", "Password1", "ILOVEYOU2", "12345678"):
        assert "10,000 most common" in read_error(visitor.fill_in(link, password=common_password))
    for personal_password in (
        email,
        email.upper(),
        local_part,
        "Vivienne Westwood",
        "viviennewestwood",
    ):
        reply = visitor.fill_in(link, name="Vivienne  Westwood", password=personal_password)
        assert "your name, your address" in read_error(reply), personal_password
    assert "your name" in read_error(
        visitor.fill_in(link, name="Vivienne Westwood", password="Vivienne")
    )
    # The rules apply only to a new password, so they don't reject an existing one at login.
    assert visitor.fill_in(link, name="Vivienne Westwood", password=PASSWORD).status_code == 303
    assert visitor.fill_in("/password/forgotten", email=email).status_code == 303
    reset_link = visitor.mailed_path(email, RESET_SUBJECT)
    assert "10,000" in read_error(visitor.fill_in(reset_link, password="sunshine1"))
    for personal_password in (local_part, "vivienne westwood"):
        assert "your name" in read_error(visitor.fill_in(reset_link, password=personal_password))
    for personal_password in (local_part, "vivienne westwood", "password"):
        reply = visitor.fill_in("/account/password", current=PASSWORD, password=personal_password)
        read_error(reply)
    assert visitor.fill_in(reset_link, password=OTHER_PASSWORD).status_code == 303


@pytest.mark.parametrize("password", ["", "short", "x" * 1025])
def test_registration_rejects_too_short_and_too_long_passwords(
    stack: Stack, visitor: Visitor, password: str
) -> None:
    email = new_address()
    reply = visitor.fill_in(request_registration_link(visitor, email), name="Vi", password=password)
    assert reply.status_code == 422
    assert '<span class="wrong" role="alert" id="password-problem">' in reply.text
    assert 'value="Vi"' in reply.text
    assert list_people(stack, email) == []


@pytest.mark.parametrize("path", ["/register", "/password/forgotten"])
def test_account_forms_reject_malformed_addresses(visitor: Visitor, path: str) -> None:
    for malformed_address in (
        "",
        "no address",
        "a@b@c",
        "x\0@example.com",
        '"><script>@example.com',
    ):
        reply = visitor.fill_in(path, email=malformed_address)
        assert reply.status_code == 422
        assert "<script" not in reply.text
    reply = visitor.fill_in(path, email="no address")
    [field] = re.findall(r'<input id="email"[^>]*>', reply.text)
    assert 'aria-describedby="email-problem" aria-invalid="true" autofocus' in field
    assert '<span class="wrong" role="alert" id="email-problem">' in reply.text


@pytest.mark.parametrize("token", ["", "x", "A" * 43, "x" * 5000, "\0"])
@pytest.mark.parametrize("path", ["/register/confirm", "/password/new"])
def test_invalid_mailed_link_shows_an_error_page(visitor: Visitor, path: str, token: str) -> None:
    reply = visitor.get(path, token=token)
    assert reply.status_code == 403
    assert heading(reply.text) == "This link doesn’t work"
    request_paths = {
        "/register/confirm": "../register",
        "/password/new": "../password/forgotten",
    }
    assert f'href="{request_paths[path]}">Request a new link</a>' in reply.text


def test_registration_link_expires_after_one_hour_and_works_for_one_purpose(
    stack: Stack, visitor: Visitor
) -> None:
    email = new_address()
    link = request_registration_link(visitor, email)
    [(lifetime_seconds,)] = stack.query(
        "SELECT extract(epoch FROM expires_at - created_at) FROM mailed_links WHERE email = %s",
        email,
    )
    assert lifetime_seconds == 3600
    for path in ("/password/new", "/account/email/confirm", "/confirm"):
        assert visitor.get(link.replace("/register/confirm", path)).status_code in (303, 403)
    stack.query("UPDATE mailed_links SET expires_at = now() WHERE email = %s", email)
    assert visitor.get(link).status_code == 403


def test_password_reset_revokes_all_sessions_and_links_and_logs_the_person_in(
    stack: Stack, visitor: Visitor
) -> None:
    email = new_account(stack)
    with new_visitor(stack) as other_visitor:
        other_visitor.log_in(email)
        links = []
        for mail_number in (1, 2):
            assert visitor.fill_in("/password/forgotten", email=email).status_code == 303
            links.append(visitor.mailed_path(email, RESET_SUBJECT, number=mail_number))
        assert links[0] != links[1]
        assert other_visitor.is_logged_in()
        # A mailed link lets the person in, even if logins are paused after failed attempts.
        stack.query("UPDATE login_attempts SET paused_until = now() + interval '1 hour'")
        assert visitor.fill_in(links[1], password=OTHER_PASSWORD).status_code == 303
        assert visitor.is_logged_in()
        assert not other_visitor.is_logged_in()
        assert other_visitor.log_in(email).status_code == 403
        assert other_visitor.log_in(email, OTHER_PASSWORD).status_code == 303
    assert "/password/forgotten" in visitor.mailed(email, CHANGED_SUBJECT)
    for link in links:
        assert visitor.get(link).status_code == 403
    stack.query("DELETE FROM login_attempts")


def test_only_one_of_several_concurrent_password_resets_with_one_link_succeeds(
    stack: Stack, visitor: Visitor
) -> None:
    email = new_account(stack)
    visitor.fill_in("/password/forgotten", email=email)
    link = visitor.mailed_path(email, RESET_SUBJECT)
    passwords = [f"{OTHER_PASSWORD} {number}" for number in range(4)]
    with ExitStack() as stack_of_browsers, ThreadPoolExecutor(len(passwords)) as pool:
        # Every thread uses a separate browser that has opened the form.
        browsers = [stack_of_browsers.enter_context(new_visitor(stack)) for _ in passwords]
        forms = [read_hidden_fields(each_browser.get(link)) for each_browser in browsers]

        def send(number: int) -> int:
            fields = {**forms[number], "password": passwords[number]}
            return browsers[number].client.post(link, data=fields).status_code

        statuses = list(pool.map(send, range(len(passwords))))
        assert sorted(statuses) == [303, 403, 403, 403]
        assert [each_browser.is_logged_in() for each_browser in browsers] == [
            status == 303 for status in statuses
        ]
    assert visitor.log_in(email, passwords[statuses.index(303)]).status_code == 303


def test_password_reset_for_an_unknown_address_sends_no_mail(
    stack: Stack, visitor: Visitor
) -> None:
    email = new_address()
    reply = visitor.fill_in("/password/forgotten", email=email)
    assert (reply.status_code, reply.headers["location"]) == (303, "?sent=yes")
    query = (
        "SELECT j.result->>'sent' FROM jobs j JOIN account_mails m ON m.id = j.subject_id"
        " WHERE j.kind = 'account.mail' AND m.email = %s AND j.status = 'succeeded'"
    )
    assert eventually(lambda: stack.query(query, email)) == [("false",)]
    assert stack.mails(email) == []


def test_password_reset_mails_per_address_are_limited(stack: Stack, visitor: Visitor) -> None:
    email = new_account(stack)
    for _ in range(MAX_MAILS_PER_ADDRESS + 2):
        assert visitor.fill_in("/password/forgotten", email=email).status_code == 303
    query = "SELECT count(*) FROM account_mails WHERE email = %s"
    assert stack.query(query, email) == [(MAX_MAILS_PER_ADDRESS,)]


CONFIRM_SUBJECT = "Confirm your new address"


@pytest.fixture
def other_browser(stack: Stack, email: str) -> Iterator[Visitor]:
    """A second browser in which the person with the address `email` is logged in."""
    with new_visitor(stack) as visitor:
        visitor.enter(email, browser="Firefox on Linux")
        yield visitor


@pytest.mark.parametrize(
    "path", ["/account", "/account/password", "/account/email", "/account/email/confirm?token=x"]
)
def test_account_pages_require_a_login(stack: Stack, path: str) -> None:
    with new_visitor(stack) as visitor:
        reply = visitor.get(path)
        assert reply.status_code == 303
        assert reply.headers["location"].startswith(f"{stack.api_url}/login?next=%2Faccount")
        post_reply = visitor.client.post(path, data={"password": PASSWORD})
        assert post_reply.status_code in (303, 405)


def test_api_key_cannot_open_account_pages(stack: Stack, email: str) -> None:
    with stack.client(stack.create_key(user_id_of(stack, email))) as client:
        assert client.get("/account").status_code == 303


@pytest.mark.parametrize("which", ["one", "all others"])
def test_account_page_shows_sessions_and_revokes_one_or_all_others(
    logged_in_visitor: Visitor, other_browser: Visitor, which: str
) -> None:
    page = logged_in_visitor.get("/account").text
    assert "Firefox on Linux" in page
    assert "127.0.0.1" not in re.sub(r'(action|href|src)="[^"]*"', "", page)
    [session_id] = re.findall(r'name="session" value="(\d+)"', page)
    session_value = session_id if which == "one" else "others"
    form = {"csrf_token": logged_in_visitor.csrf_token(), "session": session_value}
    assert logged_in_visitor.client.post("/account/sessions", data=form).status_code == 303
    assert not other_browser.is_logged_in()
    assert logged_in_visitor.is_logged_in()
    assert "Firefox on Linux" not in logged_in_visitor.get("/account").text


def test_person_cannot_end_sessions_of_another_person(
    stack: Stack, logged_in_visitor: Visitor
) -> None:
    with new_visitor(stack) as other_visitor:
        other_visitor.enter(new_account(stack))
        [(session_id,)] = stack.query("SELECT max(id) FROM user_sessions")
        for session_value in (str(session_id), "0", "", "x", "9" * 30, "-1"):
            form = {"csrf_token": logged_in_visitor.csrf_token(), "session": session_value}
            assert logged_in_visitor.client.post("/account/sessions", data=form).status_code == 404
        assert other_visitor.is_logged_in()


@pytest.mark.parametrize(
    "path", ["/logout", "/account/sessions", "/account/password", "/account/email"]
)
def test_account_forms_from_other_sites_are_rejected(
    stack: Stack, logged_in_visitor: Visitor, other_browser: Visitor, path: str
) -> None:
    form = {"session": "others", "current": PASSWORD, "password": OTHER_PASSWORD}
    foreign_token = read_hidden_fields(other_browser.get("/account"))["csrf_token"]
    for token_field in ({}, {"csrf_token": ""}, {"csrf_token": foreign_token}):
        for headers in ({}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
            reply = logged_in_visitor.client.post(
                path, data={**form, **token_field}, headers=headers
            )
            assert reply.status_code == 403
    # Account forms also reject the CSRF token of the login form, even if the browser sends the
    # cookie of the login form.
    with new_visitor(stack) as visitor:
        login_form_token = read_hidden_fields(visitor.get("/login"))["csrf_token"]
        logged_in_visitor.client.cookies.set(
            "pressroom_form", visitor.client.cookies["pressroom_form"]
        )
    reply = logged_in_visitor.client.post(path, data={**form, "csrf_token": login_form_token})
    assert reply.status_code == 403
    assert logged_in_visitor.is_logged_in()
    assert other_browser.is_logged_in()


def test_password_change_requires_the_current_password_and_is_throttled(
    stack: Stack, logged_in_visitor: Visitor, other_browser: Visitor, email: str
) -> None:
    hash_before = stack.query("SELECT password_hash FROM users WHERE email = %s", email)
    for fields in (
        {"current": "not the password", "password": OTHER_PASSWORD},
        {"current": "", "password": OTHER_PASSWORD},
        {"password": OTHER_PASSWORD},
        {"current": PASSWORD, "password": "short"},
        {"current": PASSWORD},
    ):
        reply = logged_in_visitor.fill_in("/account/password", **fields)
        assert reply.status_code == 422
        assert 'role="alert"' in reply.text
    assert stack.query("SELECT password_hash FROM users WHERE email = %s", email) == hash_before
    assert other_browser.is_logged_in()
    # Password changes are throttled, so that a thief of a session can't guess the password.
    stack.query("UPDATE login_attempts SET paused_until = now() + interval '1 hour'")
    reply = logged_in_visitor.fill_in(
        "/account/password", current=PASSWORD, password=OTHER_PASSWORD
    )
    assert reply.status_code == 429
    stack.query("DELETE FROM login_attempts")


def test_address_change_is_confirmed_by_mail_and_revokes_other_sessions_and_old_links(
    stack: Stack, logged_in_visitor: Visitor, other_browser: Visitor, visitor: Visitor, email: str
) -> None:
    user_id = user_id_of(stack, email)
    new_email = new_address()
    reply = logged_in_visitor.fill_in("/account/email", email=new_email.upper(), current=PASSWORD)
    assert reply.headers["location"] == f"{stack.api_url}/account"
    link = logged_in_visitor.mailed_path(new_email, CONFIRM_SUBJECT)
    visitor.fill_in("/password/forgotten", email=email)
    reset_link = visitor.mailed_path(email, RESET_SUBJECT)
    assert visitor.get(reset_link).status_code == 200
    assert new_email in read_text(logged_in_visitor.get(link))
    assert user_id_of(stack, email) == user_id
    assert logged_in_visitor.fill_in(link).headers["location"] == f"{stack.api_url}/account"
    assert data(logged_in_visitor.get("/users/me"))["email"] == new_email
    assert logged_in_visitor.get(link).status_code == 403
    assert logged_in_visitor.mailed(email, "The address of your account was changed")
    # An address change ends the person's other sessions, and revokes the links that were mailed to
    # the old address.
    assert not other_browser.is_logged_in()
    assert visitor.get(reset_link).status_code == 403
    assert visitor.log_in(email).status_code == 403
    assert visitor.log_in(new_email).status_code == 303


def test_address_change_to_the_current_address_only_mails_a_notice(
    logged_in_visitor: Visitor, email: str
) -> None:
    logged_in_visitor.fill_in("/account/email", email=email, current=PASSWORD)
    assert "token=" not in logged_in_visitor.mailed(email, "Your account already has this address")


def test_address_change_requires_the_password_and_a_valid_address(
    stack: Stack, logged_in_visitor: Visitor
) -> None:
    new_email = new_address()
    assert (
        logged_in_visitor.fill_in("/account/email", email=new_email, current="wrong").status_code
        == 422
    )
    assert (
        logged_in_visitor.fill_in("/account/email", email="x", current=PASSWORD).status_code == 422
    )
    assert stack.query("SELECT 1 FROM account_mails WHERE email = %s", new_email) == []
