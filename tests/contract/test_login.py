"""Tests of login and logout, and of requests that a session authenticates."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from argon2 import PasswordHasher
from sqlalchemy import select, update

from core import clock
from core.errors import DomainError
from core.ids import PersonId
from devstack.harness.stack import Owner, Stack, plain_client
from models import MailedLink
from services.access import sessions
from services.accounts import accounts, logins, passwords, registration
from tests.support.credits.credits import CONSUME, grant
from tests.support.http.pages import read_text
from tests.support.http.replies import data, problem
from tests.support.people.authenticator import add_app
from tests.support.people.visiting import (
    PASSWORD,
    SESSION_COOKIE,
    Visitor,
    new_account,
    new_address,
    new_visitor,
    read_hidden_fields,
    user_id_of,
)


def set_cookies(reply: httpx2.Response) -> dict[str, str]:
    return {header.partition("=")[0]: header for header in reply.headers.get_list("set-cookie")}


def test_login_starts_a_session_of_the_account_owner(
    stack: Stack, visitor: Visitor, email: str
) -> None:
    reply = visitor.log_in(f"  {email.upper()} ")
    assert reply.status_code == 303
    assert reply.headers["location"] == f"{stack.api_url}/console"
    assert reply.headers["cache-control"] == "no-store"
    assert data(visitor.get("/users/me"))["email"] == email
    assert email in read_text(visitor.get("/account"))


def test_session_cookie_is_http_only_and_same_site(visitor: Visitor, email: str) -> None:
    cookie = set_cookies(visitor.log_in(email))[SESSION_COOKIE]
    for attribute in ("HttpOnly", "SameSite=lax", "Path=/", "Max-Age=2592000"):
        assert attribute in cookie
    # The cookie lacks the Secure attribute only because the test stack uses HTTP on the loopback.
    assert "Secure" not in cookie
    assert "Domain" not in cookie


def test_only_an_hmac_of_the_session_cookie_is_stored_and_never_logged(
    stack: Stack, visitor: Visitor, email: str
) -> None:
    visitor.log_in(email)
    rows = stack.query("SELECT row_to_json(s)::text FROM user_sessions s")
    assert visitor.cookie not in str(rows)
    digest = stack.resources.keyring.signer("session").digest(visitor.cookie.encode()).hex()
    rows_with_digest = [row for row in rows if digest in str(row)]
    assert len(rows_with_digest) == 1
    assert "127.0.0.1" not in str(rows_with_digest)
    for process in stack.processes:
        log = process.log.read_text()
        assert visitor.cookie not in log
        assert PASSWORD not in log


def test_failed_login_looks_the_same_for_wrong_password_and_unknown_account(
    visitor: Visitor, email: str
) -> None:
    passwordless_email = new_account(visitor.stack, password=None)
    responses = []
    for address, password in (
        (email, "not the password"),
        *((passwordless_email, wrong_password) for wrong_password in ("", "None", PASSWORD)),
        (new_address(), PASSWORD),
        ("no address", PASSWORD),
        ("", ""),
        (email, "x" * 5000),
    ):
        reply = visitor.log_in(address, password)
        assert SESSION_COOKIE not in set_cookies(reply)
        varying_values = r'name="(email|csrf_token)"[^>]*value="[^"]*"|data-options="[^"]*"'
        text = re.sub(varying_values, "", reply.text)
        responses.append((reply.status_code, text))
    assert responses == [responses[0]] * len(responses)
    assert responses[0][0] == 403
    assert "Wrong e-mail address or password" in responses[0][1]


def test_every_login_issues_a_new_session_cookie_and_revokes_the_previous_one(
    visitor: Visitor, stack: Stack, email: str
) -> None:
    planted_cookie = "A" * 43
    visitor.client.cookies.set(SESSION_COOKIE, planted_cookie)
    visitor.log_in(email)
    issued_cookie = visitor.client.cookies.get(SESSION_COOKIE, domain="127.0.0.1")
    assert issued_cookie != planted_cookie
    # A login in a browser that already has a session ends the earlier session.
    with new_visitor(stack) as second_browser:
        second_browser.log_in(email)
        previous_cookie = second_browser.cookie
        form = {"email": email, "password": PASSWORD}
        origin = {"Origin": stack.api_url}
        assert second_browser.client.post("/login", data=form, headers=origin).status_code == 303
        assert second_browser.cookie != previous_cookie
        with new_visitor(stack) as thief:
            thief.client.cookies.set(SESSION_COOKIE, previous_cookie)
            problem(thief.get("/users/me"), 401, "auth.invalid_credentials")


def test_logout_revokes_the_session(stack: Stack, visitor: Visitor, email: str) -> None:
    visitor.log_in(email)
    cookie = visitor.cookie
    csrf_token = visitor.csrf_token()
    reply = visitor.client.post("/logout", data={"csrf_token": csrf_token})
    assert reply.status_code == 303
    assert SESSION_COOKIE not in visitor.client.cookies
    with new_visitor(stack) as thief:
        thief.client.cookies.set(SESSION_COOKIE, cookie)
        problem(thief.get("/users/me"), 401, "auth.invalid_credentials")


def test_login_form_from_another_site_is_rejected(
    stack: Stack, visitor: Visitor, email: str
) -> None:
    form = {"email": email, "password": PASSWORD}
    visitor.get("/login")
    for headers in ({}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
        reply = visitor.client.post("/login", data=form, headers=headers)
        assert reply.status_code == 403
        assert SESSION_COOKIE not in set_cookies(reply)
    with new_visitor(stack) as other_browser:
        other_browser.get("/login")
        stolen_cookie = other_browser.client.cookies["pressroom_form"]
    # The CSRF token of one browser is invalid in another.
    csrf_token = sessions.create_csrf_token(stack.resources.keyring, stolen_cookie)
    reply = visitor.client.post("/login", data={**form, "csrf_token": csrf_token})
    assert reply.status_code == 403


def test_login_redirects_to_the_originally_requested_page(visitor: Visitor, email: str) -> None:
    redirect = visitor.get("/account/password")
    assert redirect.status_code == 303
    assert redirect.headers["location"].endswith("/login?next=%2Faccount%2Fpassword")
    login_page = visitor.client.get(redirect.headers["location"])
    form = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', login_page.text))
    assert form["next"] == "/account/password"
    reply = visitor.client.post("/login", data={**form, "email": email, "password": PASSWORD})
    assert reply.headers["location"] == f"{visitor.stack.api_url}/account/password"


def fail(visitor: Visitor, email: str, times: int) -> httpx2.Response:
    for _ in range(times):
        reply = visitor.log_in(email, "not the password")
    return reply


def extend_pauses(stack: Stack) -> int:
    """Extend every login pause to one hour, and return the number of pauses."""
    statement = "UPDATE login_attempts SET paused_until = now() + interval '1 hour' RETURNING 1"
    return len(stack.query(statement))


def test_failed_logins_cause_growing_pauses_up_to_a_maximum(
    stack: Stack, visitor: Visitor, email: str
) -> None:
    assert fail(visitor, email, logins.CLIENT_THROTTLE.free).status_code == 403
    # Extend the login pauses, because the first pause lasts only one second. On a busy machine, one
    # second could pass before the next login.
    assert extend_pauses(stack) >= 2
    paused_login = visitor.log_in(email, "not the password")
    assert paused_login.status_code == 429
    assert int(paused_login.headers["retry-after"]) >= 1
    # During a login pause, even the right password is rejected, so that an attacker can't continue
    # guessing.
    assert visitor.log_in(email).status_code == 429
    # Delete the number of login attempts that came from the network, because this test checks the
    # numbers of attempts with each e-mail address.
    stack.query("DELETE FROM login_attempts WHERE subject IN (SELECT source FROM login_attempts)")
    unknown_email = new_address()
    assert fail(visitor, unknown_email, logins.CLIENT_THROTTLE.free).status_code == 403
    extend_pauses(stack)
    assert visitor.log_in(unknown_email).status_code == 429
    stack.query("UPDATE login_attempts SET paused_until = now(), attempts = 9")
    assert visitor.log_in(email, "not the password").status_code == 403
    [(pause_seconds,)] = stack.query(
        "SELECT max(extract(epoch FROM paused_until - tried_at)) FROM login_attempts"
        " WHERE attempts = 10"
    )
    assert pause_seconds == 32
    stack.query("UPDATE login_attempts SET paused_until = now(), attempts = 10000")
    assert visitor.log_in(email, "not the password").status_code == 403
    # Read only the rows that the last login attempt has updated. In the other rows of
    # ``login_attempts``, this test has changed ``paused_until`` but not ``tried_at``, so that the
    # login pause seems too long.
    longest_pause = stack.query(
        "SELECT max(paused_until - tried_at) FROM login_attempts WHERE attempts > 10000"
    )
    assert longest_pause == [(logins.CLIENT_THROTTLE.max_pause,)]
    stack.query("DELETE FROM login_attempts")


def test_successful_login_resets_the_failed_attempts(
    stack: Stack, visitor: Visitor, email: str
) -> None:
    count_before = stack.query("SELECT count(*) FROM login_attempts")
    fail(visitor, email, 3)
    assert stack.query("SELECT count(*) FROM login_attempts") != count_before
    visitor.log_in(email)
    assert stack.query("SELECT count(*) FROM login_attempts") == count_before


def test_failed_logins_of_strangers_do_not_block_a_known_browser_of_the_owner(
    stack: Stack, visitor: Visitor, make_visitor: Callable[[], Visitor], email: str
) -> None:
    visitor.log_in(email)
    visitor.client.post("/logout", data={"csrf_token": visitor.csrf_token()})
    stranger = make_visitor()
    assert fail(stranger, email, 1).status_code == 403
    assert extend_pauses(stack) >= 2
    assert stranger.log_in(email).status_code == 429
    # The login pauses that a stranger causes don't affect a browser in which the owner has logged
    # in before.
    assert visitor.log_in(email).status_code == 303
    # The cookie that identifies a known browser can't be forged.
    extend_pauses(stack)
    stranger.client.cookies.set("pressroom_known", "nonce.k1.AAAA")
    assert stranger.log_in(email).status_code == 429
    stack.query("DELETE FROM login_attempts")


def test_unfinished_login_attempts_count_towards_the_login_pause(
    stack: Stack, email: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = clock.now()
    # Stop the clock, so that no pause ends between two attempts on a slow machine.
    monkeypatch.setattr(clock, "now", lambda: moment)
    paused_count = 0
    for _ in range(20):
        # Pressroom counts each login attempt before the password is checked.
        try:
            with stack.resources.unit_of_work() as uow:
                logins.begin_attempt(uow, email=email, client="192.0.2.1", browser_token=None)
        except DomainError as error:
            paused_count += error.code == "login.paused"
    assert paused_count == 20 - logins.CLIENT_THROTTLE.free


def test_login_attempt_counts_contain_no_address_in_plain_text(
    stack: Stack, visitor: Visitor
) -> None:
    email = new_address()
    fail(visitor, email, 1)
    rows = str(stack.query("SELECT row_to_json(a)::text FROM login_attempts a"))
    assert email not in rows
    assert "127.0.0.1" not in rows


def test_password_hash_with_outdated_parameters_is_renewed_at_login(
    stack: Stack, visitor: Visitor, email: str
) -> None:
    outdated_hash = PasswordHasher(time_cost=2, memory_cost=16, parallelism=1).hash(PASSWORD)
    stack.query("UPDATE users SET password_hash = %s WHERE email = %s", outdated_hash, email)
    assert visitor.log_in(email).status_code == 303
    [(stored_hash,)] = stack.query("SELECT password_hash FROM users WHERE email = %s", email)
    parameters = str(passwords.hash_password(PASSWORD)).rpartition("$")[0].rpartition("$")[0]
    assert str(stored_hash).startswith(f"{parameters}$")
    with new_visitor(stack) as second_browser:
        assert second_browser.log_in(email).status_code == 303


ME_PATH = "/users/me"
NEW_KEY_BODY = {"name": "from a session"}


def test_session_has_the_same_access_as_its_user(
    logged_in_visitor: Visitor, stack: Stack, email: str
) -> None:
    assert data(logged_in_visitor.get(ME_PATH))["email"] == email
    for path in ("/lists", "/attachments", "/apikeys", "/jobs", "/auxilia/credits/balance"):
        data(logged_in_visitor.get(path))
    created_key = data(
        logged_in_visitor.client.post(
            "/apikeys", json=NEW_KEY_BODY, headers={"Origin": stack.api_url}
        )
    )
    with stack.client(created_key["key"]) as client:
        assert data(client.get(ME_PATH))["email"] == email


def test_session_cannot_request_a_delivery_export(
    logged_in_visitor: Visitor, stack: Stack, list_id: int
) -> None:
    path = f"/lists/{list_id}/exports"
    origin = {"Origin": stack.api_url}
    reply = logged_in_visitor.client.post(path, json={"kind": "delivery"}, headers=origin)
    problem(reply, 403, "auth.insufficient_scope")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:{port}.evil.example"},
        {"Origin": "http://127.0.0.1:{port}, https://evil.example"},
        {"Origin": "http://localhost:{port}"},
        {"Referer": "http://127.0.0.1:{port}/account"},
        {"Sec-Fetch-Site": "cross-site"},
        {"X-Requested-With": "XMLHttpRequest"},
        {"X-CSRF-Token": ""},
        {"X-CSRF-Token": "nonsense"},
        {"X-CSRF-Token": "{cookie}"},
        {"X-CSRF-Token": "{others}"},
        {"X-CSRF-Token": "{token}x"},
        {"Cookie": f"{SESSION_COOKIE}={{cookie}}; csrf_token={{token}}"},
    ],
)
def test_write_request_with_session_but_without_valid_csrf_proof_is_rejected(
    stack: Stack, logged_in_visitor: Visitor, headers: dict[str, Any]
) -> None:
    keyring = stack.resources.keyring
    placeholders = {
        "port": stack.api_port,
        "cookie": logged_in_visitor.cookie,
        "token": sessions.create_csrf_token(keyring, logged_in_visitor.cookie),
        "others": sessions.create_csrf_token(keyring, "x" * 43),
    }
    sent_headers = {name: value.format(**placeholders) for name, value in headers.items()}
    for method, path in (("POST", "/apikeys"), ("DELETE", "/apikeys/1"), ("PATCH", "/lists/1")):
        reply = logged_in_visitor.client.request(
            method, path, json=NEW_KEY_BODY, headers=sent_headers
        )
        problem(reply, 403, "auth.csrf")
    assert data(logged_in_visitor.get("/apikeys")) == []


def test_cross_origin_page_cannot_read_responses_to_a_session(logged_in_visitor: Visitor) -> None:
    reply = logged_in_visitor.client.get(ME_PATH, headers={"Origin": "https://evil.example"})
    assert reply.headers["access-control-allow-origin"] == "*"
    # If a response lacks ``Access-Control-Allow-Credentials`` and the request contained cookies, a
    # browser hides the response from pages of other origins.
    assert "access-control-allow-credentials" not in reply.headers


def test_csrf_token_is_accepted_in_a_header_but_not_in_the_url(logged_in_visitor: Visitor) -> None:
    token = logged_in_visitor.csrf_token()
    reply = logged_in_visitor.client.post(
        "/apikeys", params={"csrf_token": token}, json=NEW_KEY_BODY
    )
    problem(reply, 403, "auth.csrf")
    data(
        logged_in_visitor.client.post(
            "/apikeys", headers={"X-CSRF-Token": token}, json=NEW_KEY_BODY
        )
    )


def test_csrf_token_is_accepted_in_a_form_field(logged_in_visitor: Visitor) -> None:
    token = logged_in_visitor.csrf_token()
    path = "/subscriptions/1/delete"
    reply = logged_in_visitor.client.post(path, data={"List-Unsubscribe": "One-Click"})
    problem(reply, 403, "auth.csrf")
    accepted_reply = logged_in_visitor.client.post(path, data={"x": "y", "csrf_token": token})
    assert accepted_reply.status_code == 404


@pytest.mark.parametrize("value", ["", "x", "A" * 42, "A" * 43, "A" * 44, "é" * 43, "A" * 4000])
def test_malformed_or_unknown_session_cookie_is_rejected(stack: Stack, value: str) -> None:
    with plain_client(base_url=stack.api_url) as client:
        cookie = f"{SESSION_COOKIE}={value}".encode("latin-1")
        code = "auth.invalid_credentials" if value else "auth.credentials_missing"
        problem(client.get(ME_PATH, headers=[(b"Cookie", cookie)]), 401, code)


@pytest.mark.parametrize(
    ("column", "age"), [("expires_at", timedelta()), ("last_used_at", sessions.IDLE_LIFETIME)]
)
def test_session_expires_after_its_lifetime_or_inactivity(
    stack: Stack, logged_in_visitor: Visitor, email: str, column: str, age: timedelta
) -> None:
    statement = f"UPDATE user_sessions SET {column} = now() - %s WHERE user_id = %s"
    stack.query(statement, age - timedelta(minutes=2), user_id_of(stack, email))
    if column == "last_used_at":
        # A session that is used before its expiry stays valid for another full period.
        data(logged_in_visitor.get(ME_PATH))
    stack.query(statement, age + timedelta(seconds=1), user_id_of(stack, email))
    problem(logged_in_visitor.get(ME_PATH), 401, "auth.invalid_credentials")
    assert logged_in_visitor.get("/account").status_code == 303


def test_last_use_of_a_session_is_recorded_at_most_once_per_minute(
    stack: Stack, logged_in_visitor: Visitor, email: str
) -> None:
    user_id = user_id_of(stack, email)
    query = "SELECT last_used_at FROM user_sessions WHERE user_id = %s"
    before = stack.query(query, user_id)
    data(logged_in_visitor.get(ME_PATH))
    assert stack.query(query, user_id) == before
    stack.query(
        "UPDATE user_sessions SET last_used_at = now() - interval '2 minutes' WHERE user_id = %s",
        user_id,
    )
    data(logged_in_visitor.get(ME_PATH))
    assert stack.query(query, user_id) > before


def test_api_key_takes_precedence_over_a_session_of_the_same_person(
    stack: Stack, logged_in_visitor: Visitor
) -> None:
    created_key = data(
        logged_in_visitor.client.post(
            "/apikeys",
            json={"name": "narrow", "scopes": ["attachment"]},
            headers={"Origin": stack.api_url},
        )
    )
    headers = {"Authorization": f"Bearer {created_key['key']}"}
    data(logged_in_visitor.client.get(ME_PATH, headers=headers))
    reply = logged_in_visitor.client.get("/lists", headers=headers)
    problem(reply, 403, "auth.insufficient_scope")
    # A request with an API key needs no CSRF token, because other sites don't know the key.
    reply = logged_in_visitor.client.delete("/attachments/none", headers=headers)
    assert reply.status_code == 404


def test_api_key_and_session_of_different_people_are_rejected(
    logged_in_visitor: Visitor, owner: Owner
) -> None:
    for headers in ({"Authorization": f"Bearer {owner.key}"}, {"X-API-Key": owner.key}):
        problem(
            logged_in_visitor.client.get(ME_PATH, headers=headers), 401, "auth.credentials_disagree"
        )


def test_charge_with_a_cached_api_key_and_the_session_of_another_person_is_rejected(
    stack: Stack, logged_in_visitor: Visitor, owner: Owner
) -> None:
    grant(stack, owner.user_id, "1")
    charge = {"amount_credit": 0.5, "source_id": "post-1"}
    with stack.client(owner.key) as program:
        data(program.post(CONSUME, json=charge))
    headers = {"Authorization": f"Bearer {owner.key}"}
    reply = logged_in_visitor.client.post(CONSUME, json=charge, headers=headers)
    problem(reply, 401, "auth.credentials_disagree")


def test_revoked_session_is_ignored_next_to_a_valid_api_key(
    stack: Stack, owner: Owner, logged_in_visitor: Visitor, email: str
) -> None:
    with stack.resources.unit_of_work() as uow:
        assert sessions.revoke_sessions(uow, PersonId(user_id_of(stack, email))) == 1
    headers = {"Authorization": f"Bearer {owner.key}"}
    assert data(logged_in_visitor.client.get(ME_PATH, headers=headers))["id"] == owner.user_id


def test_forged_trace_id_is_rejected_despite_a_valid_session(logged_in_visitor: Visitor) -> None:
    reply = logged_in_visitor.client.delete("/subscriptions/1", params={"trace_id": "forged"})
    problem(reply, 403, "trace.invalid")


def test_malformed_session_cookie_is_rejected_without_a_database_query(
    disconnected_api: httpx2.Client,
) -> None:
    cookies = {"Cookie": f"{SESSION_COOKIE}=short"}
    problem(disconnected_api.get(ME_PATH, headers=cookies), 401, "auth.invalid_credentials")


def new_login_path(stack: Stack, email: str) -> str:
    """Create a login link as `pressroom up` does, and return its path and query."""
    with stack.resources.unit_of_work() as uow:
        url = registration.create_login_link(uow, accounts.get_user_by_email(uow, email))
    return url.removeprefix(stack.environment["PRESSROOM_PUBLIC_URL"])


def test_login_link_logs_in_once_and_only_with_its_button(stack: Stack) -> None:
    path = new_login_path(stack, new_account(stack))
    with new_visitor(stack) as visitor, new_visitor(stack) as late_visitor:
        fields = read_hidden_fields(late_visitor.get(path))
        assert visitor.get(path).status_code == 200
        assert not visitor.is_logged_in()
        without_csrf = visitor.client.post("/login/link", data={"token": fields["token"]})
        assert without_csrf.status_code == 403
        reply = visitor.fill_in(path)
        assert (reply.status_code, reply.headers["location"]) == (303, f"{stack.api_url}/console")
        assert visitor.is_logged_in()
        assert late_visitor.client.post("/login/link", data=fields).status_code == 403
        assert "already been used" in late_visitor.get(path).text
        assert not late_visitor.is_logged_in()


def test_only_one_simultaneous_use_of_a_login_link_wins(stack: Stack) -> None:
    path = new_login_path(stack, new_account(stack))
    with ExitStack() as visits, ThreadPoolExecutor(4) as pool:
        visitors = [visits.enter_context(new_visitor(stack)) for _ in range(4)]
        # Open all pages first, because the page of a used link has no form.
        forms = [read_hidden_fields(each.get(path)) for each in visitors]
        uses = [
            pool.submit(visitor.client.post, path, data=form)
            for visitor, form in zip(visitors, forms, strict=True)
        ]
        statuses = [use.result().status_code for use in uses]
    assert sorted(statuses) == [303, 403, 403, 403]


def test_login_link_ends_after_half_an_hour_and_with_a_new_password(stack: Stack) -> None:
    email = new_account(stack)
    path = new_login_path(stack, email)
    with stack.resources.unit_of_work() as uow:
        row = MailedLink.user_id == user_id_of(stack, email)
        begin, end = uow.session.execute(
            select(MailedLink.created_at, MailedLink.expires_at).where(row)
        ).one()
        assert end - begin == timedelta(minutes=30)
        uow.session.execute(update(MailedLink).where(row).values(expires_at=begin))
    replaced_path = new_login_path(stack, email)
    with stack.resources.unit_of_work() as uow:
        registration.set_password(uow, email=email, password="another long password")
    with new_visitor(stack) as visitor:
        assert "may have expired" in visitor.get(path).text
        assert "already been used" in visitor.get(replaced_path).text


def test_login_link_leads_to_the_second_factor(stack: Stack) -> None:
    email = new_account(stack)
    with new_visitor(stack) as visitor:
        visitor.log_in(email)
        add_app(visitor)
    path = new_login_path(stack, email)
    with new_visitor(stack) as visitor:
        reply = visitor.fill_in(path)
        assert reply.status_code == 403
        assert f'action="{stack.api_url}/login/factor"' in reply.text
        assert not visitor.is_logged_in()
