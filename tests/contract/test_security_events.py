"""Tests of security events, which show a person what happened to their account."""

import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from api.console.security_event_lines import build_event_line
from core.ids import AccountId
from devstack.harness.stack import Owner, Stack
from models import Plan, RecordedEvent
from services.security_events import EventType, record_event
from tests.support.http.replies import data, problem
from tests.support.lists.subscribers import new_list
from tests.support.people.oauth import log_in as log_in_owner
from tests.support.people.oauth import register
from tests.support.people.visiting import (
    OTHER_PASSWORD,
    PASSWORD,
    Visitor,
    new_account,
    new_address,
    new_visitor,
    user_id_of,
)

EVENTS_PATH = "/users/me/security-events"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"


@pytest.fixture
def firefox_visitor(stack: Stack) -> Iterator[Visitor]:
    """A logged-out visitor whose browser identifies itself as Firefox on Linux."""
    with new_visitor(stack) as visitor:
        visitor.client.headers["User-Agent"] = FIREFOX
        yield visitor


def list_events(client: httpx2.Client, **query: str) -> list[dict[str, Any]]:
    return list(data(client.get(EVENTS_PATH, params=query))["items"])


def list_types(client: httpx2.Client) -> list[str]:
    """Return the types of all security events, oldest first."""
    return [each["type"] for each in reversed(list_events(client))]


def test_security_events_show_a_login_and_summarize_repeated_failures(
    stack: Stack, firefox_visitor: Visitor, email: str
) -> None:
    for _ in range(9):
        assert firefox_visitor.log_in(email, "not the password").status_code == 403
        stack.query("UPDATE login_attempts SET paused_until = now()")
    firefox_visitor.log_in(email)
    login, *failed_logins = list_events(firefox_visitor.client)
    assert login["type"] == "login.succeeded"
    assert (login["ip"], login["user_agent"]) == ("127.0.0.1", FIREFOX)
    [(session_id,)] = stack.query(
        "SELECT id FROM user_sessions WHERE user_id = %s", user_id_of(stack, email)
    )
    assert login["credential"] == {"kind": "session", "id": session_id}
    assert [each["type"] for each in failed_logins] == ["login.failed"] * 4
    assert [each["detail"] for each in failed_logins] == [
        {"attempts": count} for count in (8, 4, 2, 1)
    ]
    assert [each["credential"] for each in failed_logins] == [None] * 4
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", login["occurred_at"])


def test_failed_login_of_an_address_without_account_is_not_recorded(
    stack: Stack, firefox_visitor: Visitor
) -> None:
    passwordless_email = new_account(stack, password=None)
    count_before = stack.query("SELECT count(*) FROM events WHERE type = 'login.failed'")
    for address in (new_address(), passwordless_email):
        assert firefox_visitor.log_in(address, "not the password").status_code == 403
    assert stack.query("SELECT count(*) FROM events WHERE type = 'login.failed'") == count_before


def test_every_account_change_is_a_security_event(
    stack: Stack, firefox_visitor: Visitor, email: str
) -> None:
    firefox_visitor.log_in(email)
    new_email = new_address()
    firefox_visitor.fill_in("/account/password", current=PASSWORD, password=OTHER_PASSWORD)
    firefox_visitor.fill_in("/account/email", current=OTHER_PASSWORD, email=new_email)
    firefox_visitor.fill_in(firefox_visitor.mailed_path(new_email, "Confirm your new address"))
    undo_path = firefox_visitor.mailed_path(email, "The address of your account was changed")
    with new_visitor(stack) as other_browser:
        reset_url = other_browser.fill_in(undo_path).headers["location"]
        other_browser.fill_in(reset_url.removeprefix(stack.api_url), password=PASSWORD)
        assert list_types(other_browser.client) == [
            "login.succeeded",
            "password.changed",
            "address.changed",
            "session.ended",
            "address.undone",
            "password.reset",
            "login.succeeded",
        ]
        password_event = list_events(other_browser.client)[-2]
        assert password_event["credential"] == list_events(other_browser.client)[-1]["credential"]


def test_creation_and_revocation_of_keys_and_grants_are_security_events(
    stack: Stack, owner: Owner
) -> None:
    program = register(stack)
    person = log_in_owner(stack, owner)
    with person.browser as browser, stack.client(owner.key) as client:
        first_key = data(client.post("/apikeys", json={"name": "one"}))
        with stack.client(first_key["key"]) as first_key_client:
            second_key = data(first_key_client.post("/apikeys", json={"name": "two"}))
        program.tokens(person, "credit.read")
        [grant] = data(client.get("/grants"))
        assert data(client.delete(f"/grants/{grant['id']}")) == 1
        assert data(client.delete(f"/apikeys/{first_key['id']}")) == 1
        # Revoking the same key or grant again adds no security event.
        assert data(client.delete(f"/apikeys/{first_key['id']}")) == 0
        assert data(client.delete(f"/grants/{grant['id']}")) == 0
        types_and_details = [(each["type"], each["detail"]) for each in list_events(client)]
        assert types_and_details[:5] == [
            ("key.ended", {"key_id": first_key["id"], "keys": 2}),
            ("grant.ended", {"grant_id": grant["id"]}),
            ("grant.created", {"grant_id": grant["id"], "scopes": ["credit.read"]}),
            ("key.created", {"key_id": second_key["id"]}),
            ("key.created", {"key_id": first_key["id"]}),
        ]
        credential_kinds = [each["credential"]["kind"] for each in list_events(client)[:4]]
        assert credential_kinds == ["key", "key", "session", "key"]
        assert list_events(client)[3]["credential"]["id"] == first_key["id"]
        assert browser.get("/account/events").text.count("2 API keys were revoked") == 1


def test_repeated_plan_rejections_are_recorded_only_once(stack: Stack) -> None:
    free_owner = stack.create_owner(plan=Plan.FREE)
    with stack.client(free_owner.key) as client:
        list_id = new_list(client)["id"]
        for _ in range(3):
            body = {"members": [{"email": new_address()}]}
            reply = client.post(f"/auxilia/subscriptions/{list_id}/members/add", json=body)
            problem(reply, 403, "plan.required")
        assert list_types(client).count("plan.refused") == 1
        assert list_events(client)[0]["credential"]["kind"] == "key"


def test_account_pages_show_security_events_in_words_and_pages(
    stack: Stack, firefox_visitor: Visitor, email: str
) -> None:
    firefox_visitor.log_in(email, "not the password")
    firefox_visitor.log_in(email)
    with stack.resources.unit_of_work() as uow:
        for _ in range(60):
            record_event(uow, AccountId(user_id_of(stack, email)), EventType.EXPORT_CREATED)
    assert firefox_visitor.get("/account").text.count("A list was exported") == 5
    page = firefox_visitor.get("/account/events")
    assert "Logged in" not in page.text
    [cursor] = re.findall(r'href="\?cursor=(\d+)"', page.text)
    page = firefox_visitor.get("/account/events", cursor=cursor)
    assert "A login failed because of a wrong password or code" in page.text
    assert "Firefox on Linux, 127.0.0.1" in page.text
    assert "Next page" not in page.text
    assert firefox_visitor.get("/account/events?cursor=x").status_code == 400


def test_every_security_event_type_has_its_own_text() -> None:
    events = [RecordedEvent(type=event_type, detail={}) for event_type in EventType]
    assert len({line.text for line in map(build_event_line, events)}) == len(EventType)


def test_api_omits_security_events_of_unknown_types(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    """During an upgrade, a newer release with more event types runs next to this release."""
    types_before = list_types(client)
    stack.query(
        "INSERT INTO events (user_id, type, detail) VALUES (%s, 'later.kind', '{}')",
        owner.user_id,
    )
    with stack.resources.unit_of_work() as uow:
        record_event(uow, owner.account_id, EventType.EXPORT_CREATED)
    assert list_types(client) == [*types_before, "export.created"]


def test_security_event_of_an_unknown_type_is_shown_by_its_name(
    stack: Stack, firefox_visitor: Visitor, email: str
) -> None:
    stack.query(
        "INSERT INTO events (user_id, type, detail) VALUES (%s, 'later.kind', '{}')",
        user_id_of(stack, email),
    )
    firefox_visitor.log_in(email)
    assert "later.kind" in firefox_visitor.get("/account/events").text
