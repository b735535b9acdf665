"""The API by the session of somebody who is logged in."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import httpx
import pytest

from services.access import sessions
from tests.contract.conftest import KEY_HEADER
from tests.contract.replies import data, problem
from tests.erasing import erase
from tests.stack import Owner, Stack, plain_client
from tests.visiting import SESSION, Visitor, a_visitor, new_account, user_id_of

ME = "/users/me"
NEW_KEY = {"name": "from a session"}


@pytest.fixture
def email(stack: Stack) -> str:
    return new_account(stack)


@pytest.fixture
def member(stack: Stack, email: str) -> Iterator[Visitor]:
    """Somebody who is logged in."""
    with a_visitor(stack) as visitor:
        value = begin(stack, email)
        visitor.client.cookies.set(SESSION, value, domain="127.0.0.1", path="/")
        yield visitor


def begin(stack: Stack, email: str) -> str:
    keyring = stack.resources.keyring
    user_id = user_id_of(stack, email)
    with stack.resources.unit_of_work() as uow:
        return sessions.begin(uow, keyring, user_id)


def test_a_session_may_do_what_its_user_may(member: Visitor, stack: Stack, email: str) -> None:
    assert data(member.get(ME))["email"] == email
    for path in ("/lists", "/attachments", "/apikeys", "/jobs", "/auxilia/credits/balance"):
        data(member.get(path))
    made = data(member.client.post("/apikeys", json=NEW_KEY, headers={"Origin": stack.api_url}))
    with stack.client(made["key"]) as client:
        assert data(client.get(ME))["email"] == email


def test_a_session_is_no_sender_of_mail(member: Visitor, stack: Stack, list_id: int) -> None:
    path, origin = f"/lists/{list_id}/exports", {"Origin": stack.api_url}
    reply = member.client.post(path, json={"kind": "delivery"}, headers=origin)
    problem(reply, 403, "auth.insufficient_scope")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:{port}.evil.example"},
        {"Origin": "http://127.0.0.1:{port}/"},
        {"Origin": "http://127.0.0.1:{port}, https://evil.example"},
        {"Origin": "http://evil.example:{port}"},
        {"Origin": "http://localhost:{port}"},
        {"Referer": "http://127.0.0.1:{port}/account"},
        {"Sec-Fetch-Site": "cross-site"},
        {"X-Requested-With": "XMLHttpRequest"},
        {"X-CSRF-Token": ""},
        {"X-CSRF-Token": "nonsense"},
        {"X-CSRF-Token": "{cookie}"},
        {"X-CSRF-Token": "{others}"},
        {"X-CSRF-Token": "{token}x"},
        {"Cookie": f"{SESSION}={{cookie}}; csrf_token={{token}}"},
    ],
)
def test_a_write_that_another_site_may_have_sent_is_refused(
    stack: Stack, member: Visitor, headers: dict[str, str]
) -> None:
    keyring = stack.resources.keyring
    words = {
        "port": stack.api_port,
        "cookie": member.cookie,
        "token": sessions.csrf_token(keyring, member.cookie),
        "others": sessions.csrf_token(keyring, "x" * 43),
    }
    sent = {name: value.format(**words) for name, value in headers.items()}
    for method, path in (("POST", "/apikeys"), ("DELETE", "/apikeys/1"), ("PATCH", "/lists/1")):
        reply = member.client.request(method, path, json=NEW_KEY, headers=sent)
        problem(reply, 403, "auth.csrf")
    assert data(member.get("/apikeys")) == []


def test_a_token_in_the_address_does_not_count(stack: Stack, member: Visitor) -> None:
    token = member.csrf_token()
    reply = member.client.post("/apikeys", params={"csrf_token": token}, json=NEW_KEY)
    problem(reply, 403, "auth.csrf")


def test_a_write_of_ours_shows_our_origin_or_a_token(stack: Stack, member: Visitor) -> None:
    for headers in ({"Origin": stack.api_url}, {"X-CSRF-Token": member.csrf_token()}):
        data(member.client.post("/apikeys", json=NEW_KEY, headers=headers))


def test_a_form_may_say_the_token_in_a_field(member: Visitor) -> None:
    token = member.csrf_token()
    path = "/subscriptions/1/delete"
    refused = member.client.post(path, data={"List-Unsubscribe": "One-Click"})
    problem(refused, 403, "auth.csrf")
    passed = member.client.post(path, data={"x": "y", "csrf_token": token})
    assert passed.status_code == 404


def test_reading_needs_no_token(member: Visitor) -> None:
    for method in ("GET", "HEAD"):
        assert member.client.request(method, ME).status_code == 200


def test_browsers_of_other_sites_read_nothing(member: Visitor) -> None:
    headers = {"Origin": "https://evil.example"}
    reply = member.client.get(ME, headers=headers)
    assert reply.headers["access-control-allow-origin"] == "*"
    # Without this a browser hands nothing that came by a cookie to a page of another site.
    assert "access-control-allow-credentials" not in reply.headers
    for path in ("/login", "/account", "/register", "/password/forgotten"):
        page = member.client.get(path, headers=headers)
        assert not [name for name in page.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("value", ["", "x", "A" * 42, "A" * 43, "A" * 44, "é" * 43, "A" * 4000])
def test_what_is_no_session_is_401(stack: Stack, value: str) -> None:
    with plain_client(base_url=stack.api_url) as client:
        cookie = f"{SESSION}={value}".encode("latin-1")
        code = "auth.invalid_credentials" if value else "auth.credentials_missing"
        problem(client.get(ME, headers=[(b"Cookie", cookie)]), 401, code)


def test_session_is_over_on_the_next_request(stack: Stack, member: Visitor, email: str) -> None:
    user_id = user_id_of(stack, email)
    data(member.get(ME))
    with stack.resources.unit_of_work() as uow:
        [session] = sessions.list_of(uow, user_id)
        assert sessions.end(uow, session.id) == 1
    problem(member.get(ME), 401, "auth.invalid_credentials")
    with stack.resources.unit_of_work() as uow:
        assert sessions.end(uow, session.id) == 0


@pytest.mark.parametrize(
    ("column", "age"),
    [
        ("expires_at", timedelta()),
        ("last_used_at", sessions.IDLE_LIFETIME),
    ],
)
def test_session_ends_by_itself(
    stack: Stack, member: Visitor, email: str, column: str, age: timedelta
) -> None:
    statement = f"UPDATE user_sessions SET {column} = now() - %s WHERE user_id = %s"
    stack.query(statement, age - timedelta(minutes=2), user_id_of(stack, email))
    if column == "last_used_at":
        # Used in time, it is good for as long again.
        data(member.get(ME))
    stack.query(statement, age + timedelta(seconds=1), user_id_of(stack, email))
    problem(member.get(ME), 401, "auth.invalid_credentials")
    assert member.get("/account").status_code == 303


def test_last_use_is_noted_by_the_minute(stack: Stack, member: Visitor, email: str) -> None:
    user_id = user_id_of(stack, email)
    query = "SELECT last_used_at FROM user_sessions WHERE user_id = %s"
    before = stack.query(query, user_id)
    data(member.get(ME))
    assert stack.query(query, user_id) == before
    stack.query(
        "UPDATE user_sessions SET last_used_at = now() - interval '2 minutes' WHERE user_id = %s",
        user_id,
    )
    data(member.get(ME))
    assert stack.query(query, user_id) > before


def test_a_key_counts_before_a_session_of_the_same_person(stack: Stack, member: Visitor) -> None:
    made = data(
        member.client.post(
            "/apikeys",
            json={"name": "narrow", "scopes": ["attachment"]},
            headers={"Origin": stack.api_url},
        )
    )
    headers = {"Authorization": f"Bearer {made['key']}"}
    data(member.client.get(ME, headers=headers))
    reply = member.client.get("/lists", headers=headers)
    problem(reply, 403, "auth.insufficient_scope")
    # No page of another site can send a key, so no token is asked for.
    reply = member.client.delete("/attachments/none", headers=headers)
    assert reply.status_code == 404


def test_a_key_and_a_session_of_two_people_disagree(member: Visitor, owner: Owner) -> None:
    for headers in ({"Authorization": f"Bearer {owner.key}"}, {"X-API-Key": owner.key}):
        problem(member.client.get(ME, headers=headers), 401, "auth.credentials_disagree")


def test_a_session_that_is_over_says_nothing_beside_a_key(
    stack: Stack, owner: Owner, member: Visitor, email: str
) -> None:
    with stack.resources.unit_of_work() as uow:
        assert sessions.end_all(uow, user_id_of(stack, email)) == 1
    headers = {"Authorization": f"Bearer {owner.key}"}
    assert data(member.client.get(ME, headers=headers))["id"] == owner.user_id


def test_a_trace_id_counts_alone(member: Visitor) -> None:
    reply = member.client.delete("/subscriptions/1", params={"trace_id": "forged"})
    problem(reply, 403, "trace.invalid")


def test_erasing_a_person_ends_their_sessions(stack: Stack, member: Visitor, email: str) -> None:
    data(member.get(ME))
    user_id = user_id_of(stack, email)
    erase(stack.resources, email)
    problem(member.get(ME), 401, "auth.invalid_credentials")
    assert stack.query("SELECT id FROM user_sessions WHERE user_id = %s", user_id) == []


def test_misshapen_cookie_is_refused_without_a_query(cut_off: httpx.Client) -> None:
    cookies = {"Cookie": f"{SESSION}=short"}
    problem(cut_off.get(ME, headers=cookies), 401, "auth.invalid_credentials")


def test_the_session_works_beside_the_setting_of_the_keys_header(
    quiet: Stack, make_stack: Callable[[str], Stack]
) -> None:
    email = new_account(quiet)
    with a_visitor(quiet) as visitor:
        visitor.client.cookies.set(SESSION, begin(quiet, email), domain="127.0.0.1", path="/")
        assert data(visitor.get(ME))["email"] == email
        wrong = visitor.client.get(ME, headers={KEY_HEADER: "prk_x"})
        problem(wrong, 401, "auth.invalid_credentials")
