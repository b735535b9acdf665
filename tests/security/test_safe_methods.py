"""Tests that GET and HEAD requests change nothing, because scanners and caches may send them."""

import re
from collections.abc import Iterator

import httpx2
import pytest

from api.app import create_app
from api.openapi.document import list_api_routes
from core.settings import Settings
from devstack.harness.stack import Stack
from tests.support.people.oauth import REDIRECT, challenge_of, log_in
from tests.support.security import world as worlds
from tests.support.security.calls import CALLS, Call
from tests.support.security.console_calls import CONSOLE_CALLS
from tests.support.security.world import World, await_jobs, digest_all_rows
from tests.support.stack.maintenance import resting_maintenance

# Pages, redirects and files for browsers, which aren't part of the OpenAPI document.
PAGES = {
    "GET /unsubscribe": Call(200, query={"trace_id": "{trace_id}"}),
    "GET /engagement": Call(200, query={"trace_id": "{trace_id}"}),
    "GET /preferences/engagement": Call(403, query={"list": "{list_id}"}),
    "GET /report": Call(200, query={"trace_id": "{trace_id}"}),
    "GET /confirm": Call(404, query={"token": "unknown"}),
    "GET /subscribed": Call(200, query={"list": "{list_id}"}),
    "GET /s/{slug}": Call(200),
    "GET /s/{slug}/report": Call(200),
    "GET /preferences/ask": Call(200, query={"list": "{list_id}"}),
    "GET /preferences/open": Call(403, query={"token": "unknown"}),
    "GET /preferences": Call(403),
    "GET /preferences/answers": Call(403, query={"list": "{list_id}"}),
    "GET /preferences/data": Call(403),
    "GET /preferences/data.json": Call(403),
    "GET /preferences/erase": Call(403),
    # If the URL has a valid signature, this page asks the payment provider for the state of an
    # order, and may store this state. The GET request still counts as safe, because Pressroom would
    # soon store the state of the order even if nobody opened the page.
    "GET /topups/return": Call(403, query={"order": "{order_id}"}),
    **{
        f"GET {path}": Call(200)
        for path in (
            "/login",
            "/register",
            "/password/forgotten",
            "/account",
            "/account/password",
            "/account/email",
            "/account/events",
            "/account/factors",
            "/account/factors/app",
            "/account/factors/passkey",
            "/login/factor",
        )
    },
    "GET /health": Call(307),
    "GET /.well-known/security.txt": Call(404),
    "GET /.well-known/change-password": Call(303),
    "GET /account/factors/codes": Call(303),
    "GET /register/confirm": Call(403, query={"token": "unknown"}),
    "GET /login/link": Call(403, query={"token": "unknown"}),
    "GET /password/new": Call(403, query={"token": "unknown"}),
    "GET /account/email/undo": Call(403, query={"token": "unknown"}),
    "GET /account/email/confirm": Call(403, query={"token": "unknown"}),
    "GET /oauth/authorize": Call(
        200,
        query={
            "response_type": "code",
            "client_id": "{client_id}",
            "redirect_uri": REDIRECT,
            "scope": "credit.read",
            "code_challenge": challenge_of("v" * 43),
            "code_challenge_method": "S256",
        },
    ),
}
# Maps GET operations to the tables that they may change. Each search for stock photos counts
# towards a quota of the plan, because the photo provider also limits the number of searches.
CHANGED_TABLES = {
    "GET /composer/{provider}/photos/search": {"composer_uses"},
    "GET /auxilia/composer/{provider}/photos/search": {"composer_uses"},
}
EVERY_CALL = {**CALLS, **CONSOLE_CALLS}
READ_CALLS = {name: call for name, call in EVERY_CALL.items() if name.startswith("GET")} | PAGES


@pytest.fixture(scope="module")
def settled_account(stack: Stack) -> Iterator[World]:
    """An account that owns one object of each kind, and has no running or due jobs."""
    world = worlds.build(stack)
    # The path of a sign-up page may contain the list's id instead of its slug.
    world.values |= {"provider": "stockphoto", "slug": world.values["list_id"]}
    # Pause the webhook endpoints of earlier tests, whose deliveries are retried again and again.
    stack.query("UPDATE webhook_endpoints SET state = 'paused' WHERE state = 'active'")
    await_jobs(stack)
    with resting_maintenance(stack):
        yield world
    world.client.close()


def test_safe_method_tests_cover_every_get_route() -> None:
    app = create_app(Settings.model_construct())
    get_routes = {
        f"GET {route.path_format}"
        for route in list_api_routes(app)
        if "GET" in (route.methods or ())
    }
    assert set(READ_CALLS) == get_routes


@pytest.fixture(scope="module")
def owner_browser(stack: Stack, settled_account: World) -> Iterator[httpx2.Client]:
    """A browser in which the owner of the fixture `settled_account` is logged in."""
    with log_in(stack, settled_account.owner).browser as client:
        yield client


@pytest.mark.parametrize("operation", READ_CALLS)
def test_get_and_head_requests_do_not_change_the_database(
    settled_account: World, owner_browser: httpx2.Client, stranger: httpx2.Client, operation: str
) -> None:
    call = READ_CALLS[operation]
    before = digest_all_rows(settled_account)
    path = operation.removeprefix("GET ")
    for client in (settled_account.client, owner_browser, stranger):
        replies = [
            call.send(client, f"{method} {path}", settled_account.values)
            for method in ("GET", "HEAD", "GET", "HEAD")
        ]
        [status] = {reply.status_code for reply in replies}
        assert status < 500
        assert replies[1].content == replies[3].content == b""
    after = digest_all_rows(settled_account)
    changed_tables = {table for table in after if after[table] != before[table]}
    assert changed_tables == CHANGED_TABLES.get(operation, set())


def test_no_response_contains_signed_url_if_the_login_is_too_old(
    stack: Stack, settled_account: World, owner_browser: httpx2.Client
) -> None:
    age_sessions = (
        "UPDATE user_sessions SET logged_in_at = now() - interval '16 minutes' WHERE user_id ="
    )
    stack.query(f"{age_sessions} %s", settled_account.owner.user_id)
    for operation, call in READ_CALLS.items():
        reply = call.send(owner_browser, operation, settled_account.values)
        signatures = re.findall(r"signature=\w", reply.text + reply.headers.get("location", ""))
        assert signatures == [], operation
