"""What happens to an account is shown to its owner, and to no other."""

import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from api.console.security_event_lines import build_event_line
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
    a_visitor,
    new_account,
    new_address,
    user_id_of,
)

PATH = "/users/me/security-events"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"


@pytest.fixture
def firefox_visitor(stack: Stack) -> Iterator[Visitor]:
    """A logged-out visitor whose browser identifies itself as Firefox on Linux."""
    with a_visitor(stack) as visitor:
        visitor.client.headers["User-Agent"] = FIREFOX
        yield visitor


def events(client: httpx2.Client, **query: str) -> list[dict[str, Any]]:
    return list(data(client.get(PATH, params=query))["items"])


def types(client: httpx2.Client) -> list[str]:
    """Oldest first."""
    return [each["type"] for each in reversed(events(client))]


def test_security_events_show_a_login_and_summarize_repeated_failures(
    stack: Stack, firefox_visitor: Visitor, email: str
) -> None:
    for _ in range(9):
        assert firefox_visitor.log_in(email, "not the password").status_code == 403
        stack.query("UPDATE login_attempts SET paused_until = now()")
    firefox_visitor.log_in(email)
    login, *failed = events(firefox_visitor.client)
    assert login["type"] == "login.succeeded"
    assert (login["ip"], login["user_agent"]) == ("127.0.0.1", FIREFOX)
    [(session_id,)] = stack.query(
        "SELECT id FROM user_sessions WHERE user_id = %s", user_id_of(stack, email)
    )
    assert login["credential"] == {"kind": "session", "id": session_id}
    assert [each["type"] for each in failed] == ["login.failed"] * 4
    assert [each["detail"] for each in failed] == [{"attempts": count} for count in (8, 4, 2, 1)]
    assert [each["credential"] for each in failed] == [None] * 4
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", login["occurred_at"])


def test_failed_login_of_an_address_without_account_is_not_recorded(
    stack: Stack, firefox_visitor: Visitor
) -> None:
    subscriber = new_account(stack, password=None)
    before = stack.query("SELECT count(*) FROM events WHERE type = 'login.failed'")
    for address in (new_address(), subscriber):
        assert firefox_visitor.log_in(address, "not the password").status_code == 403
    assert stack.query("SELECT count(*) FROM events WHERE type = 'login.failed'") == before


def test_every_account_change_is_a_security_event(
    stack: Stack, firefox_visitor: Visitor, email: str
) -> None:
    firefox_visitor.log_in(email)
    new = new_address()
    firefox_visitor.fill_in("/account/password", current=PASSWORD, password=OTHER_PASSWORD)
    firefox_visitor.fill_in("/account/email", current=OTHER_PASSWORD, email=new)
    firefox_visitor.fill_in(firefox_visitor.mailed_path(new, "Confirm your new address"))
    undo = firefox_visitor.mailed_path(email, "The address of your account was changed")
    with a_visitor(stack) as elsewhere:
        reset = elsewhere.fill_in(undo).headers["location"]
        elsewhere.fill_in(reset.removeprefix(stack.api_url), password=PASSWORD)
        assert types(elsewhere.client) == [
            "login.succeeded",
            "password.changed",
            "address.changed",
            "session.ended",
            "address.undone",
            "password.reset",
            "login.succeeded",
        ]
        changed = events(elsewhere.client)[-2]
        assert changed["credential"] == events(elsewhere.client)[-1]["credential"]


def test_creation_and_revocation_of_keys_and_grants_are_security_events(
    stack: Stack, owner: Owner
) -> None:
    program = register(stack)
    person = log_in_owner(stack, owner)
    with person.browser as browser, stack.client(owner.key) as client:
        made = data(client.post("/apikeys", json={"name": "one"}))
        with stack.client(made["key"]) as maker:
            second = data(maker.post("/apikeys", json={"name": "two"}))
        program.tokens(person, "credit.read")
        [grant] = data(client.get("/grants"))
        assert data(client.delete(f"/grants/{grant['id']}")) == 1
        assert data(client.delete(f"/apikeys/{made['id']}")) == 1
        # A second time changes nothing.
        assert data(client.delete(f"/apikeys/{made['id']}")) == 0
        assert data(client.delete(f"/grants/{grant['id']}")) == 0
        shown = [(each["type"], each["detail"]) for each in events(client)]
        assert shown[:5] == [
            ("key.ended", {"key_id": made["id"], "keys": 2}),
            ("grant.ended", {"grant_id": grant["id"]}),
            ("grant.created", {"grant_id": grant["id"], "scopes": ["credit.read"]}),
            ("key.created", {"key_id": second["id"]}),
            ("key.created", {"key_id": made["id"]}),
        ]
        by = [each["credential"]["kind"] for each in events(client)[:4]]
        assert by == ["key", "key", "session", "key"]
        assert events(client)[3]["credential"]["id"] == made["id"]
        assert browser.get("/account/events").text.count("2 API keys were revoked") == 1


def test_repeated_plan_rejections_are_recorded_only_once(stack: Stack) -> None:
    frugal = stack.create_owner(plan=Plan.FREE)
    with stack.client(frugal.key) as client:
        list_id = new_list(client)["id"]
        for _ in range(3):
            body = {"members": [{"email": new_address()}]}
            reply = client.post(f"/auxilia/subscriptions/{list_id}/members/add", json=body)
            problem(reply, 403, "plan.required")
        assert types(client).count("plan.refused") == 1
        assert events(client)[0]["credential"]["kind"] == "key"


def test_account_pages_show_security_events_in_words_and_pages(
    stack: Stack, firefox_visitor: Visitor, email: str
) -> None:
    firefox_visitor.log_in(email, "not the password")
    firefox_visitor.log_in(email)
    with stack.resources.unit_of_work() as uow:
        for _ in range(60):
            record_event(uow, user_id_of(stack, email), EventType.EXPORT_CREATED)
    assert firefox_visitor.get("/account").text.count("A list was exported") == 5
    page = firefox_visitor.get("/account/events")
    assert "Logged in" not in page.text
    [older] = re.findall(r'href="\?cursor=(\d+)"', page.text)
    page = firefox_visitor.get("/account/events", cursor=older)
    assert "A login failed because of a wrong password or code" in page.text
    assert "Firefox on Linux, 127.0.0.1" in page.text
    assert "Next page" not in page.text
    assert firefox_visitor.get("/account/events?cursor=x").status_code == 400


def test_every_security_event_type_has_its_own_text() -> None:
    made = [RecordedEvent(type=kind, detail={}) for kind in EventType]
    assert len({line.text for line in map(build_event_line, made)}) == len(EventType)


def test_api_omits_security_events_of_unknown_types(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    """A newer release, which runs next to this release during an upgrade, has more types."""
    before = types(client)
    stack.query(
        "INSERT INTO events (user_id, type, detail) VALUES (%s, 'later.kind', '{}')",
        owner.user_id,
    )
    with stack.resources.unit_of_work() as uow:
        record_event(uow, owner.user_id, EventType.EXPORT_CREATED)
    assert types(client) == [*before, "export.created"]


def test_security_event_of_an_unknown_type_is_shown_by_its_name(
    stack: Stack, firefox_visitor: Visitor, email: str
) -> None:
    stack.query(
        "INSERT INTO events (user_id, type, detail) VALUES (%s, 'later.kind', '{}')",
        user_id_of(stack, email),
    )
    firefox_visitor.log_in(email)
    assert "later.kind" in firefox_visitor.get("/account/events").text
