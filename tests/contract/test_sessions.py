"""The API by the session of somebody who is logged in."""

from datetime import timedelta

import httpx2
import pytest

from services.access import sessions
from tests.contract.conftest import KEY_HEADER
from tests.contract.replies import data, problem
from tests.stack import Owner, Stack, plain_client
from tests.visiting import SESSION, Visitor, a_visitor, new_account, user_id_of

ME = "/users/me"
NEW_KEY = {"name": "from a session"}


def test_a_session_may_do_what_its_user_may(person: Visitor, stack: Stack, email: str) -> None:
    assert data(person.get(ME))["email"] == email
    for path in ("/lists", "/attachments", "/apikeys", "/jobs", "/auxilia/credits/balance"):
        data(person.get(path))
    made = data(person.client.post("/apikeys", json=NEW_KEY, headers={"Origin": stack.api_url}))
    with stack.client(made["key"]) as client:
        assert data(client.get(ME))["email"] == email


def test_a_session_is_no_sender_of_mail(person: Visitor, stack: Stack, list_id: int) -> None:
    path, origin = f"/lists/{list_id}/exports", {"Origin": stack.api_url}
    reply = person.client.post(path, json={"kind": "delivery"}, headers=origin)
    problem(reply, 403, "auth.insufficient_scope")


def test_a_write_that_another_site_may_have_sent_is_refused(stack: Stack, person: Visitor) -> None:
    for headers in [
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
        {"Cookie": f"{SESSION}={{cookie}}; csrf_token={{token}}"},
    ]:
        keyring = stack.resources.keyring
        words = {
            "port": stack.api_port,
            "cookie": person.cookie,
            "token": sessions.csrf_token(keyring, person.cookie),
            "others": sessions.csrf_token(keyring, "x" * 43),
        }
        sent = {name: value.format(**words) for name, value in headers.items()}
        for method, path in (("POST", "/apikeys"), ("DELETE", "/apikeys/1"), ("PATCH", "/lists/1")):
            reply = person.client.request(method, path, json=NEW_KEY, headers=sent)
            problem(reply, 403, "auth.csrf")
        assert data(person.get("/apikeys")) == []


def test_a_token_in_the_address_does_not_count(person: Visitor) -> None:
    token = person.csrf_token()
    reply = person.client.post("/apikeys", params={"csrf_token": token}, json=NEW_KEY)
    problem(reply, 403, "auth.csrf")


def test_a_write_of_ours_shows_our_origin_or_a_token(stack: Stack, person: Visitor) -> None:
    for headers in ({"Origin": stack.api_url}, {"X-CSRF-Token": person.csrf_token()}):
        data(person.client.post("/apikeys", json=NEW_KEY, headers=headers))


def test_a_form_may_say_the_token_in_a_field(person: Visitor) -> None:
    token = person.csrf_token()
    path = "/subscriptions/1/delete"
    reply = person.client.post(path, data={"List-Unsubscribe": "One-Click"})
    problem(reply, 403, "auth.csrf")
    passed = person.client.post(path, data={"x": "y", "csrf_token": token})
    assert passed.status_code == 404


def test_browsers_of_other_sites_read_nothing(person: Visitor) -> None:
    headers = {"Origin": "https://evil.example"}
    reply = person.client.get(ME, headers=headers)
    assert reply.headers["access-control-allow-origin"] == "*"
    # Without this a browser hands nothing that came by a cookie to a page of another site.
    assert "access-control-allow-credentials" not in reply.headers
    for path in ("/login", "/account", "/register", "/password/forgotten"):
        page = person.client.get(path, headers=headers)
        assert not [name for name in page.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("value", ["", "x", "A" * 42, "A" * 43, "A" * 44, "é" * 43, "A" * 4000])
def test_what_is_no_session_is_401(stack: Stack, value: str) -> None:
    with plain_client(base_url=stack.api_url) as client:
        cookie = f"{SESSION}={value}".encode("latin-1")
        code = "auth.invalid_credentials" if value else "auth.credentials_missing"
        problem(client.get(ME, headers=[(b"Cookie", cookie)]), 401, code)


@pytest.mark.parametrize(
    ("column", "age"), [("expires_at", timedelta()), ("last_used_at", sessions.IDLE_LIFETIME)]
)
def test_session_ends_by_itself(
    stack: Stack, person: Visitor, email: str, column: str, age: timedelta
) -> None:
    statement = f"UPDATE user_sessions SET {column} = now() - %s WHERE user_id = %s"
    stack.query(statement, age - timedelta(minutes=2), user_id_of(stack, email))
    if column == "last_used_at":
        # Used in time, it is good for as long again.
        data(person.get(ME))
    stack.query(statement, age + timedelta(seconds=1), user_id_of(stack, email))
    problem(person.get(ME), 401, "auth.invalid_credentials")
    assert person.get("/account").status_code == 303


def test_last_use_is_noted_by_the_minute(stack: Stack, person: Visitor, email: str) -> None:
    user_id = user_id_of(stack, email)
    query = "SELECT last_used_at FROM user_sessions WHERE user_id = %s"
    before = stack.query(query, user_id)
    data(person.get(ME))
    assert stack.query(query, user_id) == before
    stack.query(
        "UPDATE user_sessions SET last_used_at = now() - interval '2 minutes' WHERE user_id = %s",
        user_id,
    )
    data(person.get(ME))
    assert stack.query(query, user_id) > before


def test_a_key_counts_before_a_session_of_the_same_person(stack: Stack, person: Visitor) -> None:
    made = data(
        person.client.post(
            "/apikeys",
            json={"name": "narrow", "scopes": ["attachment"]},
            headers={"Origin": stack.api_url},
        )
    )
    headers = {"Authorization": f"Bearer {made['key']}"}
    data(person.client.get(ME, headers=headers))
    reply = person.client.get("/lists", headers=headers)
    problem(reply, 403, "auth.insufficient_scope")
    # No page of another site can send a key, so no token is asked for.
    reply = person.client.delete("/attachments/none", headers=headers)
    assert reply.status_code == 404


def test_a_key_and_a_session_of_two_people_disagree(person: Visitor, owner: Owner) -> None:
    for headers in ({"Authorization": f"Bearer {owner.key}"}, {"X-API-Key": owner.key}):
        problem(person.client.get(ME, headers=headers), 401, "auth.credentials_disagree")


def test_a_session_that_is_over_says_nothing_beside_a_key(
    stack: Stack, owner: Owner, person: Visitor, email: str
) -> None:
    with stack.resources.unit_of_work() as uow:
        assert sessions.end_all(uow, user_id_of(stack, email)) == 1
    headers = {"Authorization": f"Bearer {owner.key}"}
    assert data(person.client.get(ME, headers=headers))["id"] == owner.user_id


def test_a_trace_id_counts_alone(person: Visitor) -> None:
    reply = person.client.delete("/subscriptions/1", params={"trace_id": "forged"})
    problem(reply, 403, "trace.invalid")


def test_misshapen_cookie_is_refused_without_a_query(cut_off: httpx2.Client) -> None:
    cookies = {"Cookie": f"{SESSION}=short"}
    problem(cut_off.get(ME, headers=cookies), 401, "auth.invalid_credentials")


def test_the_session_works_beside_the_setting_of_the_keys_header(quiet: Stack) -> None:
    email = new_account(quiet)
    with a_visitor(quiet) as visitor:
        visitor.enter(email)
        assert data(visitor.get(ME))["email"] == email
        wrong = visitor.client.get(ME, headers={KEY_HEADER: "prk_x"})
        problem(wrong, 401, "auth.invalid_credentials")
