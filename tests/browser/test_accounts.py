"""Browser tests of registration, login, passwords and second factors."""

import re
from collections.abc import Callable, Iterator

import pyotp
import pytest
from playwright.sync_api import Page, expect

from devstack.harness.free_ports import free_port
from devstack.harness.stack import Stack
from tests.support.browser import accessibility
from tests.support.browser.accessibility import IS_THOROUGH, OpenPage, require_accessible
from tests.support.people.visiting import (
    OTHER_PASSWORD,
    PASSWORD,
    Visitor,
    new_account,
    new_address,
)


@pytest.fixture
def mailbox_reader(make_visitor: Callable[[], Visitor]) -> Visitor:
    return make_visitor()


def expect_heading(page: Page, heading: str) -> None:
    accessibility.require_page(page, heading)
    expect(page).to_have_title(re.compile(f"^{heading}( – Pressroom)?$"))


@pytest.mark.tier("fast", "browser")
def test_person_registers_sees_the_first_steps_and_logs_out_in_the_browser(
    stack: Stack, page: Page, mailbox_reader: Visitor
) -> None:
    email = new_address()
    page.goto(f"{stack.api_url}/login")
    page.get_by_role("link", name="Create an account").click()
    expect_heading(page, "Create an account")
    page.get_by_label("E-mail address").fill(email)
    page.get_by_role("button", name="Send me the link").click()
    expect_heading(page, "Check your e-mail")
    page.goto(stack.api_url + mailbox_reader.mailed_path(email, "Finish creating your account"))
    expect_heading(page, "Finish creating your account")
    page.get_by_label("Your name").fill("Ada Lovelace")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Create my account").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Welcome, Ada Lovelace")
    assert page.url == f"{stack.api_url}/console"
    steps = page.get_by_role("region", name="First steps").get_by_role("link")
    expect(steps).to_have_text(["Create a list"])
    page.get_by_role("link", name="Account", exact=True).click()
    expect_heading(page, "Your account")
    expect(page.get_by_role("main")).to_contain_text(f"Ada Lovelace, {email}")
    expect(page.get_by_role("main")).to_contain_text("Chrome on Linux (this browser)")
    page.get_by_role("button", name="Log out", exact=True).click()
    expect_heading(page, "Log in")
    page.goto(f"{stack.api_url}/account")
    expect_heading(page, "Log in")


@pytest.mark.tier("browser")
def test_person_can_reset_password_and_log_out_another_browser(
    stack: Stack, page: Page, mailbox_reader: Visitor
) -> None:
    email = new_account(stack)
    page.goto(f"{stack.api_url}/login")
    page.get_by_role("link", name="Forgot your password?").click()
    page.get_by_label("E-mail address").fill(email)
    page.get_by_role("button", name="Send me the link").click()
    page.goto(stack.api_url + mailbox_reader.mailed_path(email, "Choose a new password"))
    expect_heading(page, "Choose a new password")
    page.get_by_label("Password").fill(OTHER_PASSWORD)
    page.get_by_role("button", name="Save and log in").click()
    expect_heading(page, "Your account")
    mailbox_reader.log_in(email, OTHER_PASSWORD)
    page.reload()
    page.get_by_role("button", name="Log out the browser").click()
    expect_heading(page, "Your account")
    expect(page.get_by_role("status")).to_have_text("The browser was logged out.")
    assert not mailbox_reader.is_logged_in()


@pytest.mark.tier("browser")
def test_person_can_change_password_and_address_and_recover_the_account(
    stack: Stack, page: Page, mailbox_reader: Visitor
) -> None:
    email = new_account(stack)
    new_email = new_address()
    page.goto(f"{stack.api_url}/account/password")
    expect_heading(page, "Log in")
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill("not the password")
    page.get_by_role("button", name="Log in").click()
    expect_heading(page, "Log in")
    expect(page.get_by_role("alert")).to_contain_text("Wrong e-mail address or password")
    expect(page.get_by_label("E-mail address")).to_have_value(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    # After the login, the browser shows the page that was requested before the login.
    expect_heading(page, "Change your password")
    page.get_by_label("Current password").fill(PASSWORD)
    page.get_by_label("New password").fill(OTHER_PASSWORD)
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_role("status")).to_contain_text("Your password was changed")
    page.get_by_role("link", name="E-mail address").click()
    expect_heading(page, "Change your e-mail address")
    page.get_by_label("New e-mail address").fill(new_email)
    page.get_by_label("Password").fill(OTHER_PASSWORD)
    page.get_by_role("button", name="Send confirmation link").click()
    expect(page.get_by_role("status")).to_contain_text("sending a link to the new address")
    page.goto(stack.api_url + mailbox_reader.mailed_path(new_email, "Confirm your new address"))
    expect_heading(page, "Confirm your new address")
    page.get_by_role("button", name="Change my address").click()
    expect(page.get_by_role("status")).to_have_text("Your address was changed.")
    expect(page.get_by_role("main")).to_contain_text(new_email)
    page.goto(
        stack.api_url + mailbox_reader.mailed_path(email, "The address of your account was changed")
    )
    expect_heading(page, "Recover your account")
    page.get_by_role("button", name="Recover my account").click()
    expect_heading(page, "Choose a new password")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Save and log in").click()
    expect_heading(page, "Your account")
    expect(page.get_by_role("main")).to_contain_text(email)


@pytest.fixture(scope="module")
def named_url(stack: Stack) -> Iterator[str]:
    """The URL of an API at the host `localhost`.

    The host is a name, because browsers refuse passkeys for IP addresses such as 127.0.0.1.
    """
    port = free_port()
    url = f"http://localhost:{port}"
    process = stack.start_api(port, PRESSROOM_PUBLIC_URL=url)
    yield url
    process.stop()


def type_password(page: Page, named_url: str, email: str) -> None:
    page.goto(f"{named_url}/login")
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")


def log_out(page: Page, named_url: str) -> None:
    page.goto(f"{named_url}/account")
    page.get_by_role("button", name="Log out", exact=True).click()
    expect_heading(page, "Log in")


def add_device(page: Page, *, verifies: bool = True) -> None:
    """Add a virtual authenticator, which creates passkeys and always gets its user's consent."""
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


@pytest.mark.tier("fast", "browser")
def test_person_can_add_authenticator_app_and_log_in_by_keyboard(
    stack: Stack, open_page: OpenPage, email: str
) -> None:
    page = open_page("about:blank")
    type_password(page, stack.api_url, email)
    page.get_by_role("link", name="Account", exact=True).press("Enter")
    page.get_by_role("link", name="Second factors").press("Enter")
    expect_heading(page, "Your second factors")
    page.get_by_role("link", name="Add an authenticator app").press("Enter")
    expect_heading(page, "Add an authenticator app")
    expect(page.get_by_role("img", name="QR code")).to_be_visible()
    secret = (page.locator("code").text_content() or "").replace(" ", "")
    page.get_by_label("Code", exact=True).fill("123")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("This code is wrong or has already been used.")
    expect_heading(page, "Add an authenticator app")
    page.get_by_label("Code", exact=True).fill(pyotp.TOTP(secret).now())
    page.keyboard.press("Enter")
    expect_heading(page, "Your recovery codes")
    codes = page.locator(".codes li").all_text_contents()
    assert len(codes) == 10
    page.get_by_role("link", name="I have saved the codes").press("Enter")
    expect_heading(page, "Your second factors")
    log_out(page, stack.api_url)
    type_password(page, stack.api_url, email)
    expect_heading(page, "Confirm it’s you")
    page.get_by_label("Code", exact=True).fill("123456")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("This code is wrong or has already been used.")
    page.get_by_label("Code", exact=True).fill(codes[0])
    page.keyboard.press("Enter")
    page.wait_for_url("**/console")


@pytest.mark.tier("browser")
def test_passkey_works_as_second_factor_and_for_login_and_password_reset(
    named_url: str, open_page: OpenPage, mailbox_reader: Visitor, email: str
) -> None:
    page = open_page("about:blank")
    add_device(page)
    type_password(page, named_url, email)
    page.wait_for_url("**/console")
    page.goto(f"{named_url}/account/factors/passkey")
    expect_heading(page, "Add a passkey")
    page.get_by_label("Name", exact=True).fill("This laptop")
    page.keyboard.press("Enter")
    expect_heading(page, "Your recovery codes")
    log_out(page, named_url)
    type_password(page, named_url, email)
    expect_heading(page, "Confirm it’s you")
    page.get_by_role("button", name="Use a passkey").press("Enter")
    page.wait_for_url("**/console")
    log_out(page, named_url)
    page.get_by_role("button", name="Use a passkey").press("Enter")
    page.wait_for_url("**/console")
    page.goto(f"{named_url}/account")
    expect(page.get_by_role("main")).to_contain_text(email)
    mailbox_reader.fill_in("/password/forgotten", email=email)
    page.goto(named_url + mailbox_reader.mailed_path(email, "Choose a new password"))
    expect_heading(page, "Choose a new password")
    page.get_by_label("This laptop").uncheck()
    page.get_by_label("Password").fill(OTHER_PASSWORD)
    page.get_by_role("button", name="Save with a passkey").click()
    expect_heading(page, "Your account")
    page.goto(f"{named_url}/account/factors")
    expect_heading(page, "Your second factors")
    expect(page.get_by_role("region", name="Passkey: This laptop")).to_contain_text(
        re.compile("last used (just now|.* ago)")
    )
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("You have no second factor yet.")).to_be_visible()


@pytest.mark.tier("browser")
def test_login_without_usable_passkey_shows_error_and_still_accepts_password(
    named_url: str, open_page: OpenPage, email: str
) -> None:
    page = open_page("about:blank")
    # The login without a password fails, because the test's device doesn't verify its user.
    add_device(page, verifies=False)
    page.goto(f"{named_url}/login")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("alert")).to_contain_text("Your browser sent no passkey")
    if IS_THOROUGH:
        require_accessible(page)
    type_password(page, named_url, email)
    page.wait_for_url("**/console")
