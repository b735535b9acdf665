"""Tests in a browser: a person allows an app to access the account, and revokes the access."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from core.scopes import SCOPE_EXPLANATIONS, Scope
from devstack.harness.stack import Stack
from tests.support.browser.accessibility import require_page
from tests.support.http.servers import QuietHandler, http_server, running_server
from tests.support.people.oauth import Program, fields_of, register
from tests.support.people.visiting import PASSWORD, new_account

pytestmark = pytest.mark.tier("fast", "browser")
CLIENT_NAME = "Ledger reader"
ALL_SCOPES = tuple(SCOPE_EXPLANATIONS)
CONSENT_HEADING = f"{CLIENT_NAME} wants to access your account"
APPS_HEADING = "Connected apps"


class _Callback(QuietHandler):
    """A client's callback page, which redirects to another page of the client."""

    def do_GET(self) -> None:
        if self.path.startswith("/callback"):
            other_host = self.headers["Host"].replace("127.0.0.1", "localhost")
            self.reply(
                302,
                headers={"Location": f"http://{other_host}{self.path.replace('callback', 'in')}"},
            )
        else:
            page = b"<!doctype html><link rel=icon href=data:,><h1>Back at the program</h1>"
            self.reply(200, page, {"Content-Type": "text/html"})


@pytest.fixture
def program(stack: Stack) -> Iterator[Program]:
    with running_server(http_server(_Callback)) as url:
        redirect_uris = (f"{url}/callback",)
        yield register(
            stack, redirect_uris=redirect_uris, scopes=ALL_SCOPES, public=True, name=CLIENT_NAME
        )


def test_person_can_grant_some_scopes_to_an_app_and_revoke_them(
    stack: Stack, page: Page, program: Program
) -> None:
    email = new_account(stack)
    page.goto(stack.api_url + program.request(*ALL_SCOPES))
    require_page(page, "Log in")
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    require_page(page, CONSENT_HEADING)
    expect(page).to_have_title(f"Allow {CLIENT_NAME}?")
    for explanation in SCOPE_EXPLANATIONS.values():
        expect(page.get_by_label(explanation)).to_be_checked()
    for scope in ALL_SCOPES:
        if scope not in {Scope.CREDIT_READ, Scope.COMPOSER}:
            page.get_by_label(SCOPE_EXPLANATIONS[scope]).uncheck()
    page.get_by_role("button", name="Allow", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Back at the program")
    answer = fields_of(page.url)
    assert (answer["state"], answer["iss"]) == ("s-1", stack.api_url)
    tokens = program.exchange(answer["code"]).json()
    assert tokens["scope"] == "composer credit.read"

    page.goto(f"{stack.api_url}/account")
    page.get_by_role("link", name="Developers").click()
    tabs = page.get_by_role("navigation", name="Developers")
    tabs.get_by_role("link", name="Connected apps", exact=True).click()
    require_page(page, APPS_HEADING)
    expect(page.get_by_role("heading", level=2)).to_have_text(CLIENT_NAME)
    app_region = page.get_by_role("region", name=CLIENT_NAME)
    expect(app_region.get_by_role("listitem")).to_have_text(
        [SCOPE_EXPLANATIONS[Scope.COMPOSER], SCOPE_EXPLANATIONS[Scope.CREDIT_READ]]
    )
    app_region.get_by_role("link", name="Revoke access").click()
    page.get_by_role("button", name="Revoke access").click()
    require_page(page, APPS_HEADING)
    expect(page.get_by_text("No connected apps")).to_be_visible()
    with stack.client(tokens["access_token"]) as client:
        assert client.get("/users/me").status_code == 401
