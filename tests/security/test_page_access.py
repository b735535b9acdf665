"""Tests that every page enforces the access rule that its route declares."""

import re
from collections.abc import Iterator
from functools import cache
from urllib.parse import urlencode

import httpx2
import pytest

from api.app import create_app
from api.auth.page_sessions import LoginNeeded
from api.auth.requirements import PageAccess, PublicAccess
from api.openapi.document import find_access, list_api_routes
from core.settings import Settings
from devstack.harness.stack import Stack
from tests.support.people.consoles import at_operators_console
from tests.support.people.visiting import age_logins

# The pages that everybody may open. Links in mails prove who opens some of these pages.
PUBLIC_PAGES = {
    "/.well-known/change-password",
    "/.well-known/security.txt",
    "/account/email/undo",
    "/confirm",
    "/console/assets/{name}",
    "/engagement",
    "/health",
    "/login",
    "/login/factor",
    "/login/link",
    "/login/passkey",
    "/password/forgotten",
    "/password/new",
    "/preferences",
    "/preferences/answers",
    "/preferences/ask",
    "/preferences/data",
    "/preferences/data.json",
    "/preferences/end",
    "/preferences/engagement",
    "/preferences/erase",
    "/preferences/open",
    "/register",
    "/register/confirm",
    "/report",
    "/s/{slug}",
    "/s/{slug}/report",
    "/subscribed",
    "/topups/return",
    "/unsubscribe",
}
# The consent page validates the app's request before the login, and everybody may log out.
PAGES_WITH_OPTIONAL_LOGIN = {"GET /oauth/authorize", "POST /oauth/authorize", "POST /logout"}
# The handlers of uploads check the CSRF token, which tests/security/test_isolation.py tests.
UPLOADS = {"POST /console/images", "POST /console/imports/new"}


@cache
def page_rules() -> dict[str, PageAccess]:
    """Map each page behind a login, such as ``GET /console``, to its access rule."""
    return {
        f"{method} {route.path_format}": access
        for route in list_api_routes(create_app(Settings.model_construct()))
        if isinstance(access := find_access(route), PageAccess)
        for method in route.methods or ()
    }


def needs_login(rule: PageAccess) -> bool:
    try:
        rule.check(None)
    except LoginNeeded:
        return True
    return False


def send(client: httpx2.Client, operation: str, form: dict[str, str] | None) -> httpx2.Response:
    method, path = re.sub(r"\{[^}]*\}", "1", operation).split(" ")
    reply = client.request(method, path, data=form if method == "POST" else None)
    assert reply.status_code < 500, (operation, reply.text)
    return reply


@pytest.fixture
def old_session(stack: Stack) -> Iterator[httpx2.Client]:
    """The browser of an operator whose login is older than 15 minutes."""
    with at_operators_console(stack) as operator:
        age_logins(stack, operator.owner.email, 16)
        yield operator.visitor.client


def test_only_the_listed_pages_are_public() -> None:
    public_paths = {
        route.path_format
        for route in list_api_routes(create_app(Settings.model_construct()))
        if not route.include_in_schema and isinstance(find_access(route), PublicAccess)
    }
    assert public_paths == PUBLIC_PAGES


def test_page_behind_login_leads_strangers_to_the_login(stranger: httpx2.Client) -> None:
    names = {name for name, rule in page_rules().items() if needs_login(rule)}
    assert page_rules().keys() - names == PAGES_WITH_OPTIONAL_LOGIN
    places = {name: send(stranger, name, {}).headers.get("location", "") for name in names}
    for name in names:
        path = re.sub(r"\{[^}]*\}", "1", name).partition(" ")[2]
        assert places[name].endswith(f"/login?{urlencode({'next': path})}"), name


def test_exactly_pages_that_require_a_recent_login_lead_old_sessions_to_the_login(
    stack: Stack, old_session: httpx2.Client
) -> None:
    old_session.headers["Origin"] = stack.api_url
    rules = {name: rule for name, rule in page_rules().items() if needs_login(rule)}
    is_redirected = {
        name: "/login?again=yes&next=" in send(old_session, name, {}).headers.get("location", "")
        for name in rules
    }
    assert is_redirected == {name: rule.is_recent for name, rule in rules.items()}


def test_form_without_csrf_token_is_refused_before_the_time_of_the_login_is_checked(
    old_session: httpx2.Client,
) -> None:
    forms = {name for name, rule in page_rules().items() if rule.is_form}
    assert {name for name in page_rules() if name.startswith("POST ")} - forms == UPLOADS
    statuses = {name: send(old_session, name, {"csrf_token": "x"}).status_code for name in forms}
    assert statuses == dict.fromkeys(forms, 403)
