"""Tests of the limits and the mails that protect an account from a stolen session."""

import html
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from api.auth.member_reads import MAX_MEMBERS_PER_SESSION_PAGE, MAX_PAGES_PER_HOUR
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import build_address_file, import_members_file
from tests.support.lists.segments import ALL_MEMBERS_FILTER
from tests.support.lists.subscribers import insert_members, new_list
from tests.support.lists.subscribers import new_address as new_reader
from tests.support.people.consoles import at_console
from tests.support.people.oauth import Person, register
from tests.support.people.visiting import Visitor, age_logins, new_account, new_visitor, user_id_of
from tests.support.security import world as worlds
from tests.support.security.calls import CALLS, Call
from tests.support.security.console_calls import CONSOLE_CALLS
from tests.support.security.world import World
from tests.support.senders.posting import body_of, report


def test_session_reads_smaller_member_pages_and_many_pages_raise_a_security_event(
    stack: Stack, logged_in_visitor: Visitor, email: str
) -> None:
    with stack.client(stack.create_key(user_id_of(stack, email))) as program:
        list_id = new_list(program)["id"]
        insert_members(
            stack, list_id, [new_reader() for _ in range(MAX_MEMBERS_PER_SESSION_PAGE + 1)]
        )
        path = f"/lists/{list_id}/subscriptions"
        search = f"/lists/{list_id}/members/search"
        body = {"filter": ALL_MEMBERS_FILTER, "limit": 1000}
        origin = {"Origin": stack.api_url}

        def list_members(caller: httpx2.Client, **options: str) -> httpx2.Response:
            return caller.get(path, params={"limit": "1000", **options})

        def search_members(caller: httpx2.Client, **options: str) -> httpx2.Response:
            return caller.post(search, json={**body, **options}, headers=origin)

        for read in (list_members, search_members):
            assert len(data(read(program))["items"]) == MAX_MEMBERS_PER_SESSION_PAGE + 1
            first_page = data(read(logged_in_visitor.client))
            assert (
                len(first_page["items"])
                == first_page["pagination"]["limit"]
                == MAX_MEMBERS_PER_SESSION_PAGE
            )
            cursor = first_page["pagination"]["next_cursor"]
            assert len(data(read(logged_in_visitor.client, cursor=cursor))["items"]) == 1

        events = data(logged_in_visitor.client.get("/events", params={"limit": 1000}))
        assert events["pagination"]["limit"] == MAX_MEMBERS_PER_SESSION_PAGE
        assert data(program.get("/events", params={"limit": 1000}))["pagination"]["limit"] == 1000

        def list_read_events() -> list[dict[str, object]]:
            security_events = data(program.get("/users/me/security-events"))["items"]
            return [each["detail"] for each in security_events if each["type"] == "members.read"]

        # Pressroom counts how many result pages with members are read with a session cookie.
        # Reading a result page with an API key doesn't increase this count.
        for _ in range(MAX_PAGES_PER_HOUR - 5):
            data(program.get(path, params={"limit": 1}))
            data(logged_in_visitor.get(path, limit="1"))
        assert list_read_events() == []
        for _ in range(2):
            assert logged_in_visitor.get(f"/console/lists/{list_id}/members").status_code == 200
        assert list_read_events() == [{"pages": MAX_PAGES_PER_HOUR}]


# The pages and routes that show the address of a member of ``member_world``.
MEMBER_READS = {
    *("GET /console", "GET /console/find", "GET /console/developers/feed"),
    *("GET /console/lists/{list_id}/members", "GET /console/lists/{list_id}/members/{user_id}"),
    "GET /console/lists/{list_id}/members/{user_id}/remove",
    "GET /console/lists/{list_id}/segments/{segment_id}/changes",
    "GET /console/developers/senders/{sender_id}",
    "POST /console/developers/senders/{sender_id}/try",
    "GET /console/developers/webhooks/{endpoint_id}",
    "GET /console/developers/webhooks/{endpoint_id}/deliveries/{delivery_id}",
    *("GET /events", "GET /lists/{list_id}/subscriptions", "POST /lists/{list_id}/members/search"),
    *("GET /lists/{list_id}/members/{user_id}", "PATCH /lists/{list_id}/members/{user_id}"),
    "PUT /lists/{list_id}/members/{user_id}",
    "GET /subscriptions/{list_id}/members/{user_id}/subs",
}


@pytest.fixture(scope="module")
def member_world(stack: Stack) -> Iterator[World]:
    """An owner whose list, sender and webhook have facts about members."""
    world = worlds.build(stack)
    client, values = world.client, world.values
    body = {"url": "http://127.0.0.1:9/", "types": ["subscription.email_off"]}
    endpoint_id = data(client.post("/webhook-endpoints", json=body))["id"]
    values["endpoint_id"] = endpoint_id
    path = f"/subscriptions/{values['list_id']}/members/{values['user_id']}/email"
    data(client.put(path, json={"enabled": False}))
    deliveries = eventually(
        lambda: data(client.get(f"/webhook-endpoints/{endpoint_id}/deliveries"))["items"],
        what="the delivery",
    )
    values |= {"delivery_id": deliveries[0]["id"], "as_whom": "session", "provider": "x"}
    yield world
    client.close()


def count_member_pages(stack: Stack, world: World) -> int:
    """Return the number of pages of members that the sessions of the owner read in this hour."""
    redis = stack.resources.redis
    [key] = redis.scan_iter("pressroom:rates:*member-pages*")
    count: Any = redis.hget(key, str(world.owner.user_id))
    return int(count)


def test_every_page_that_shows_addresses_of_members_counts_as_a_page_of_members(
    stack: Stack, member_world: World
) -> None:
    email = f"member0.{member_world.mark}@example.com"
    complaint = body_of(report("complained", email=email)).decode()
    reads = {
        **CONSOLE_CALLS,
        **CALLS,
        "GET /events": Call(200),
        "POST /console/developers/senders/{sender_id}/try": Call(
            200, form={"body": complaint.replace("{", "{{").replace("}", "}}")}
        ),
    }
    shown = set()
    with at_console(stack, member_world.owner) as console:
        data(console.visitor.get(f"/lists/{member_world.values['list_id']}/subscriptions"))
        age_logins(stack, member_world.owner.email, 300)
        browser = console.visitor.client
        browser.headers["Origin"] = stack.api_url
        for operation, call in reads.items():
            if operation.startswith("DELETE") or call.program:
                continue
            before = count_member_pages(stack, member_world)
            text = html.unescape(call.send(browser, operation, member_world.values).text)
            if email in text.replace("<wbr>", ""):
                shown.add(operation)
                assert count_member_pages(stack, member_world) > before, operation
    assert shown >= MEMBER_READS


def test_session_with_old_login_gets_no_export_file_url_and_cannot_retry_exports(
    stack: Stack, logged_in_visitor: Visitor, email: str
) -> None:
    origin = {"Origin": stack.api_url}
    with stack.client(stack.create_key(user_id_of(stack, email))) as program:
        list_id = new_list(program)["id"]
        job = data(program.post(f"/lists/{list_id}/exports", json={"kind": "members"}))
        path = f"/jobs/{job['id']}"
        assert data(logged_in_visitor.get(path))["result"]["url"]
        age_logins(stack, email, 15)
        for record in (
            data(logged_in_visitor.get(path)),
            data(logged_in_visitor.get("/jobs"))["items"][0],
        ):
            assert record["result"] == {**job["result"], "url": None}
        assert '"url":null' in logged_in_visitor.get(f"{path}/events").text
        assert data(program.get(path))["result"]["url"]
        retry_reply = logged_in_visitor.client.post(f"{path}/retry", headers=origin)
        problem(retry_reply, 403, "auth.login_again")
        problem(program.post(f"{path}/retry"), 409, "job.not_retryable")


def test_session_with_old_login_cannot_open_rejected_import_rows(stack: Stack) -> None:
    with at_console(stack) as owner:
        list_id = new_list(owner.api)["id"]
        import_members_file(owner.api, list_id, build_address_file("nobody@", "a@example.com"))
        job_id = data(owner.api.get("/jobs"))["items"][0]["id"]
        import_id = data(owner.api.get("/imports"))["items"][0]["id"]
        paths = ("/imports", "/jobs", f"/imports/{import_id}", f"/jobs/{job_id}")

        def read_error_urls(client: httpx2.Client) -> list[str]:
            replies = [data(client.get(path)) for path in paths]
            records = [each["items"][0] if "items" in each else each for each in replies]
            return [(each.get("result") or each)["errors_url"] for each in records]

        session = owner.visitor.client
        for url in read_error_urls(session):
            assert "nobody@" in httpx2.get(url).text
        age_logins(stack, owner.owner.email, 15)
        for url in read_error_urls(session):
            problem(httpx2.get(url), 403, "link.invalid")
        for url in read_error_urls(owner.api):
            assert "nobody@" in httpx2.get(url).text


def test_every_new_api_key_is_reported_by_mail(
    stack: Stack, logged_in_visitor: Visitor, email: str
) -> None:
    origin = {"Origin": stack.api_url}
    name = "look at https://evil.example"
    first_key = data(logged_in_visitor.client.post("/apikeys", json={"name": name}, headers=origin))
    mail_text = logged_in_visitor.mailed(email, "Your account has a new API key")
    assert first_key["last_four"] in mail_text
    assert first_key["key"] not in mail_text
    assert "evil" not in mail_text
    with stack.client(first_key["key"]) as program:
        second_key = data(program.post("/apikeys", json={"name": "second"}))
    assert second_key["last_four"] in logged_in_visitor.mailed(
        email, "Your account has a new API key", number=2
    )


def test_new_oauth_client_and_additional_scopes_are_reported_by_mail(
    stack: Stack, logged_in_visitor: Visitor, email: str
) -> None:
    program = register(stack, name="Ledger reader")
    owner = Person(stack, Owner(user_id_of(stack, email), email, ""), logged_in_visitor.client)
    subject = "An app has access to your account"
    program.tokens(owner, "credit.read")
    assert "Ledger reader" in logged_in_visitor.mailed(email, subject)
    program.tokens(owner, "credit.read")
    program.tokens(owner, "attachment")
    logged_in_visitor.mailed(email, subject, number=2)
    mail_count = stack.query(
        "SELECT count(*) FROM account_mails WHERE email = %s AND kind = 'new_program'", email
    )
    assert mail_count == [(2,)]


def test_first_login_in_a_new_browser_is_reported_by_one_mail(stack: Stack, email: str) -> None:
    subject = "New login to your account"
    count_mails = "SELECT count(*) FROM account_mails WHERE email = %s AND kind = 'new_browser'"
    with new_visitor(stack) as visitor:
        visitor.client.headers["User-Agent"] = "Mozilla/5.0 (X11; Linux) Firefox/140.0"
        assert visitor.log_in(email, "not the password").status_code == 403
        assert stack.query(count_mails, email) == [(0,)]
        visitor.log_in(email)
        assert "Firefox on Linux" in visitor.mailed(email, subject)
        form = {"csrf_token": visitor.csrf_token()}
        assert visitor.client.post("/logout", data=form).status_code == 303
        visitor.log_in(email)
        assert stack.query(count_mails, email) == [(1,)]
        # A browser that one person has used is still new for another person who logs in with it.
        other_email = new_account(stack)
        visitor.client.post("/logout", data={"csrf_token": visitor.csrf_token()})
        visitor.log_in(other_email)
        visitor.mailed(other_email, subject)
