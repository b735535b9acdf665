"""Giving a program access, and taking it back, in a real browser: what is seen and pressed."""

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import ConsoleMessage, Page, expect

from core.scopes import EXPLANATIONS, Scope
from tests.browser.test_unsubscribe import NARROW, require_accessible
from tests.oauth import Program, fields_of, register
from tests.stack import Stack
from tests.visiting import PASSWORD, new_account

Open = Callable[..., Page]
Keep = Callable[[Page, str], Path]
NAME = "Ledger reader"
SIX = tuple(EXPLANATIONS)
ASKS = f"{NAME} asks for access to your account"
LISTED = "Programs with access to your account"


@pytest.fixture
def page(open_page: Open) -> Iterator[Page]:
    """An empty page; the test fails if what is opened in it logs an error."""
    opened = open_page("about:blank")
    complaints: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and "status of 4" not in message.text:
            complaints.append(message.text)

    opened.on("console", hear)
    yield opened
    assert complaints == []


class _Callback(BaseHTTPRequestHandler):
    """A program's page, which leads on within the program as most do."""

    def do_GET(self) -> None:
        if self.path.startswith("/callback"):
            self.send_response(302)
            query = self.path.partition("?")[2]
            assert isinstance(self.server, ThreadingHTTPServer)
            onwards = f"http://localhost:{self.server.server_port}/in?{query}"
            self.send_header("Location", onwards)
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><link rel=icon href=data:,><h1>Back at the program</h1>")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def callback() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Callback)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/callback"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def program(stack: Stack, callback: str) -> Program:
    return register(stack, redirect_uris=(callback,), scopes=SIX, public=True, name=NAME)


def log_in(page: Page, email: str) -> None:
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()


def shows(page: Page, heading: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    require_accessible(page)


def test_a_person_logs_in_agrees_to_a_part_and_takes_it_back(
    stack: Stack, page: Page, program: Program, keep: Keep
) -> None:
    email = new_account(stack)
    page.goto(stack.api_url + program.request(*SIX))
    shows(page, "Log in")
    log_in(page, email)
    shows(page, ASKS)
    expect(page).to_have_title(f"Allow {NAME}?")
    keep(page, "consent")
    for explanation in EXPLANATIONS.values():
        expect(page.get_by_label(explanation)).to_be_checked()
    for scope in SIX:
        if scope not in {Scope.CREDIT_READ, Scope.COMPOSER}:
            page.get_by_label(EXPLANATIONS[scope]).uncheck()
    page.get_by_role("button", name="Allow", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Back at the program")
    answer = fields_of(page.url)
    assert (answer["state"], answer["iss"]) == ("s-1", stack.api_url)
    given = program.exchange(answer["code"]).json()
    assert given["scope"] == "composer credit.read"

    page.goto(f"{stack.api_url}/account")
    page.get_by_role("link", name=LISTED).click()
    shows(page, LISTED)
    expect(page.get_by_role("heading", level=2)).to_have_text(NAME)
    granted = page.get_by_role("region", name=NAME)
    expect(granted.get_by_role("listitem")).to_have_text(
        [EXPLANATIONS[Scope.COMPOSER], EXPLANATIONS[Scope.CREDIT_READ]]
    )
    keep(page, "grants")
    granted.get_by_role("link", name="Take back").click()
    page.get_by_role("button", name="Take it back").click()
    shows(page, LISTED)
    expect(page.get_by_text("No other program may use your account")).to_be_visible()
    keep(page, "grants-none")
    with stack.client(given["access_token"]) as client:
        assert client.get("/users/me").status_code == 401


def test_a_person_says_no(stack: Stack, page: Page, program: Program) -> None:
    page.goto(stack.api_url + program.request("attachment"))
    log_in(page, new_account(stack))
    page.get_by_role("button", name="Don’t allow").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Back at the program")
    assert fields_of(page.url)["error"] == "access_denied"


def test_the_keyboard_alone_is_enough(stack: Stack, page: Page, program: Program) -> None:
    page.goto(stack.api_url + program.request("credit.read", "attachment"))
    log_in(page, new_account(stack))
    shows(page, ASKS)
    page.keyboard.press("Tab")
    expect(page.get_by_label(EXPLANATIONS[Scope.ATTACHMENT])).to_be_focused()
    outline = "each => getComputedStyle(each).outlineStyle"
    assert page.locator(":focus").evaluate(outline) == "solid"
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    expect(page.get_by_label(EXPLANATIONS[Scope.CREDIT_READ])).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Allow")
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Don’t allow")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Back at the program")
    given = program.exchange(fields_of(page.url)["code"]).json()
    assert given["scope"] == "credit.read"
    page.goto(f"{stack.api_url}/console/programs/access")
    page.get_by_role("link", name="Take back").press("Enter")
    page.get_by_role("button", name="Take it back").press("Enter")
    expect(page.get_by_text("No other program may use your account")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_windows_show_all_without_scrolling_sideways(
    stack: Stack, page: Page, callback: str, keep: Keep, scheme: str
) -> None:
    page.set_viewport_size({"width": NARROW, "height": 640})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    long = "Donaudampfschifffahrtsgesellschaftskapitänsmützen" * 2
    program = register(stack, redirect_uris=(callback,), scopes=SIX, public=True, name=long)
    page.goto(stack.api_url + program.request(*SIX))
    log_in(page, new_account(stack))
    shows(page, f"{long} asks for access to your account")
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
    keep(page, f"consent-narrow-{scheme}")
    page.get_by_role("button", name="Allow", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Back at the program")
    page.goto(f"{stack.api_url}/console/programs/access")
    shows(page, LISTED)
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
    keep(page, f"grants-narrow-{scheme}")


def test_a_program_nobody_knows_gets_a_kind_page_and_no_redirect(
    stack: Stack, page: Page, program: Program, keep: Keep
) -> None:
    page.goto(stack.api_url + program.request(redirect_uri="https://evil.example/"))
    shows(page, "This program asked in a wrong way")
    keep(page, "consent-wrong")
    page.goto(stack.api_url + program.request(client_id="nobody"))
    shows(page, "This program is not known here")
