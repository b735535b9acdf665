"""Second factors in a real browser: an app's codes by keyboard alone, and passkeys."""

import re
from collections.abc import Iterator

import pyotp
import pytest
from playwright.sync_api import Page, expect

from tests.browser import looks
from tests.browser.looks import IS_THOROUGH, Keep, Open, require_accessible
from tests.ports import free_port
from tests.stack import Stack
from tests.visiting import PASSWORD, Visitor, a_visitor

OTHER_PASSWORD = "an altogether other one"


@pytest.fixture(scope="module")
def site(stack: Stack) -> Iterator[str]:
    """The pages at a name: browsers make no passkeys for an address of numbers."""
    port = free_port()
    url = f"http://localhost:{port}"
    running = stack.start_api(port, PRESSROOM_PUBLIC_URL=url)
    yield url
    running.stop()


@pytest.fixture
def mailbox(stack: Stack) -> Iterator[Visitor]:
    with a_visitor(stack) as visitor:
        yield visitor


def shows(page: Page, heading: str) -> None:
    looks.shows(page, heading)
    expect(page).to_have_title(re.compile(f"^{heading}( – Pressroom)?$"))


def type_password(page: Page, site: str, email: str) -> None:
    page.goto(f"{site}/login")
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")


def log_out(page: Page, site: str) -> None:
    page.goto(f"{site}/account")
    page.get_by_role("button", name="Log out", exact=True).click()
    shows(page, "Log in")


def add_device(page: Page, *, verifies: bool = True) -> None:
    """Give the browser a device that makes passkeys, and whose owner always agrees."""
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": verifies,
        "isUserVerified": verifies,
        "automaticPresenceSimulation": True,
    }
    session.send("WebAuthn.addVirtualAuthenticator", {"options": options})


@pytest.mark.both("browser")
def test_a_person_adds_an_app_and_logs_in_by_keyboard(
    stack: Stack, open_page: Open, email: str, keep: Keep
) -> None:
    page = open_page("about:blank")
    type_password(page, stack.api_url, email)
    page.get_by_role("link", name="Second factors").press("Enter")
    shows(page, "Your second factors")
    keep(page, "factors-none")
    page.get_by_role("link", name="Add an authenticator app").press("Enter")
    shows(page, "Add an authenticator app")
    expect(page.get_by_role("img", name="QR code")).to_be_visible()
    keep(page, "factors-app")
    secret = (page.locator("code").text_content() or "").replace(" ", "")
    page.get_by_label("Code", exact=True).fill("123")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("This code is wrong, or was used before.")
    shows(page, "Add an authenticator app")
    page.get_by_label("Code", exact=True).fill(pyotp.TOTP(secret).now())
    page.keyboard.press("Enter")
    shows(page, "Your recovery codes")
    keep(page, "factors-codes")
    codes = page.locator(".codes li").all_text_contents()
    assert len(codes) == 10
    page.get_by_role("link", name="I have kept them").press("Enter")
    shows(page, "Your second factors")
    keep(page, "factors-app-added")
    log_out(page, stack.api_url)
    type_password(page, stack.api_url, email)
    shows(page, "Your second factor")
    keep(page, "second-step")
    page.get_by_label("Code", exact=True).fill("123456")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("This code is wrong, or was used before.")
    page.get_by_label("Code", exact=True).fill(codes[0])
    page.keyboard.press("Enter")
    shows(page, "Your account")


@pytest.mark.full("browser")
def test_a_passkey_is_made_and_logs_in_with_a_password_and_without(
    site: str, open_page: Open, email: str, keep: Keep
) -> None:
    page = open_page("about:blank")
    add_device(page)
    type_password(page, site, email)
    shows(page, "Your account")
    page.goto(f"{site}/account/factors/passkey")
    shows(page, "Add a passkey")
    keep(page, "factors-passkey")
    page.get_by_label("Name").fill("This laptop")
    page.keyboard.press("Enter")
    shows(page, "Your recovery codes")
    page.goto(f"{site}/account/factors")
    expect(page.get_by_role("heading", name="Passkey: This laptop")).to_be_visible()
    shows(page, "Your second factors")
    log_out(page, site)
    type_password(page, site, email)
    shows(page, "Your second factor")
    page.get_by_role("button", name="Use a passkey").press("Enter")
    shows(page, "Your account")
    log_out(page, site)
    page.get_by_role("button", name="Use a passkey").press("Enter")
    shows(page, "Your account")
    expect(page.get_by_role("main")).to_contain_text(email)
    page.goto(f"{site}/account/factors")
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("You have none.")).to_be_visible()


@pytest.mark.full("browser")
def test_a_passkey_lets_a_person_choose_a_new_password(
    site: str, open_page: Open, mailbox: Visitor, email: str, keep: Keep
) -> None:
    page = open_page("about:blank")
    add_device(page)
    type_password(page, site, email)
    shows(page, "Your account")
    page.goto(f"{site}/account/factors/passkey")
    page.get_by_label("Name").fill("This laptop")
    page.get_by_role("button", name="Create the passkey").click()
    shows(page, "Your recovery codes")
    mailbox.fill_in("/password/forgotten", email=email)
    page.goto(site + mailbox.mailed_path(email, "Choose a new password"))
    shows(page, "Choose a new password")
    keep(page, "reset-with-passkey")
    page.get_by_label("This laptop").uncheck()
    page.get_by_label("Password").fill(OTHER_PASSWORD)
    page.get_by_role("button", name="Save with a passkey").click()
    shows(page, "Your account")
    page.goto(f"{site}/account/factors")
    expect(page.get_by_role("heading", name="Passkey: This laptop")).to_be_visible()


@pytest.mark.full("browser")
def test_a_browser_without_a_passkey_says_so(site: str, open_page: Open, email: str) -> None:
    page = open_page("about:blank")
    # Of a device that can't verify its user, which a login without a password needs.
    add_device(page, verifies=False)
    page.goto(f"{site}/login")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("alert")).to_contain_text("The browser gave no passkey")
    if IS_THOROUGH:
        require_accessible(page)
    type_password(page, site, email)
    shows(page, "Your account")
