"""Accounts in a real browser: what a person sees, fills in and presses, by keyboard too."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import ConsoleMessage, Page, expect

from core.scopes import EXPLANATIONS, Scope
from tests.browser.test_unsubscribe import NARROW, require_accessible
from tests.stack import Stack
from tests.visiting import PASSWORD, Visitor, a_visitor, new_account, new_address, user_id_of

Open = Callable[..., Page]
Keep = Callable[[Page, str], Path]
OTHER_PASSWORD = "an altogether other one"
PAGES = ("/login", "/register", "/password/forgotten", "/register?sent=yes")
OWN_PAGES = (
    "/account",
    "/account/password",
    "/account/email",
    "/account/events",
    "/account/imports",
)


@pytest.fixture
def page(open_page: Open) -> Iterator[Page]:
    """An empty page; the test fails if what is opened in it logs an error that it should not."""
    opened = open_page("about:blank")
    complaints: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        # A browser logs every page that is answered 4xx, as a form with something wrong is.
        if message.type in {"error", "warning"} and "status of 4" not in message.text:
            complaints.append(message.text)

    opened.on("console", hear)
    yield opened
    assert complaints == []


@pytest.fixture
def mailbox(stack: Stack) -> Iterator[Visitor]:
    with a_visitor(stack) as visitor:
        yield visitor


def shows(page: Page, heading: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    expect(page).to_have_title(heading)
    require_accessible(page)


def log_in(page: Page, stack: Stack, email: str, password: str = PASSWORD) -> None:
    page.goto(f"{stack.api_url}/login")
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_a_person_registers_and_logs_out(
    stack: Stack, page: Page, mailbox: Visitor, keep: Keep
) -> None:
    email = new_address()
    page.goto(f"{stack.api_url}/login")
    page.get_by_role("link", name="Make an account").click()
    shows(page, "Make an account")
    keep(page, "register")
    page.get_by_label("E-mail address").fill(email)
    page.get_by_role("button", name="Send me the link").click()
    shows(page, "Look into your mailbox")
    keep(page, "register-mailed")
    page.goto(stack.api_url + mailbox.mailed_path(email, "Finish your registration"))
    shows(page, "Finish your registration")
    keep(page, "register-confirm")
    page.get_by_label("Your name").fill("Ada Lovelace")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Make my account").click()
    shows(page, "Your account")
    expect(page.get_by_role("main")).to_contain_text(f"Ada Lovelace, {email}")
    expect(page.get_by_role("main")).to_contain_text("Chrome on Linux (this one)")
    page.get_by_role("button", name="Log out", exact=True).click()
    shows(page, "Log in")
    page.goto(f"{stack.api_url}/account")
    shows(page, "Log in")


def test_a_person_logs_in_at_the_second_try_and_lands_where_they_wanted(
    stack: Stack, page: Page, keep: Keep
) -> None:
    email = new_account(stack)
    page.goto(f"{stack.api_url}/account/email")
    shows(page, "Log in")
    keep(page, "login")
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill("not the password")
    page.get_by_role("button", name="Log in").click()
    shows(page, "Log in")
    expect(page.get_by_role("alert")).to_contain_text("don’t belong together")
    expect(page.get_by_label("E-mail address")).to_have_value(email)
    keep(page, "login-wrong")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    shows(page, "Change your e-mail address")
    assert page.url == f"{stack.api_url}/account/email"


def test_a_person_gets_a_new_password_and_sees_to_their_sessions(
    stack: Stack, page: Page, mailbox: Visitor, keep: Keep
) -> None:
    email = new_account(stack)
    page.goto(f"{stack.api_url}/login")
    page.get_by_role("link", name="Forgotten your password?").click()
    page.get_by_label("E-mail address").fill(email)
    page.get_by_role("button", name="Send me the link").click()
    page.goto(stack.api_url + mailbox.mailed_path(email, "Choose a new password"))
    shows(page, "Choose a new password")
    keep(page, "new-password")
    page.get_by_label("Password").fill(OTHER_PASSWORD)
    page.get_by_role("button", name="Save and log in").click()
    shows(page, "Your account")
    mailbox.log_in(email, OTHER_PASSWORD)
    page.reload()
    keep(page, "account")
    page.get_by_role("button", name="Log out the browser").click()
    shows(page, "Your account")
    expect(page.get_by_role("status")).to_have_text("That is done.")
    assert not mailbox.is_in()


def test_a_person_changes_password_and_address(
    stack: Stack, page: Page, mailbox: Visitor, keep: Keep
) -> None:
    email, new = new_account(stack), new_address()
    log_in(page, stack, email)
    page.get_by_role("link", name="Change your password").click()
    shows(page, "Change your password")
    keep(page, "account-password")
    page.get_by_label("Present password").fill(PASSWORD)
    page.get_by_label("New password").fill(OTHER_PASSWORD)
    page.get_by_role("button", name="Change my password").click()
    expect(page.get_by_role("status")).to_contain_text("Your password is changed")
    page.get_by_role("link", name="Change your e-mail address").click()
    keep(page, "account-email")
    page.get_by_label("New e-mail address").fill(new)
    page.get_by_label("Password").fill(OTHER_PASSWORD)
    page.get_by_role("button", name="Send me the link").click()
    shows(page, "Look into your mailbox")
    page.goto(stack.api_url + mailbox.mailed_path(new, "Confirm your new address"))
    shows(page, "Confirm your new address")
    keep(page, "account-email-confirm")
    page.get_by_role("button", name="Yes, change it").click()
    expect(page.get_by_role("status")).to_have_text("Your account has its new address.")
    expect(page.get_by_role("main")).to_contain_text(new)


def test_pages_work_without_scripts_and_by_keyboard_alone(stack: Stack, page: Page) -> None:
    browser = page.context.browser
    assert browser
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(f"{stack.api_url}/login")
    for typed in (new_account(stack), PASSWORD):
        plain.keyboard.press("Tab")
        plain.keyboard.type(typed)
    plain.keyboard.press("Enter")
    expect(plain.get_by_role("heading", level=1)).to_have_text("Your account")
    plain.keyboard.press("Tab")
    focused = plain.locator(":focus")
    expect(focused).to_have_text("Your console: lists, members and all else")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_narrow_screen_in_light_and_dark(
    stack: Stack, page: Page, keep: Keep, scheme: str
) -> None:
    page.set_viewport_size({"width": NARROW, "height": 640})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    log_in(page, stack, new_account(stack, name="Donaudampfschifffahrtsgesellschaft" * 4))
    for path in (*OWN_PAGES, *PAGES):
        if path == "/login":
            page.goto(f"{stack.api_url}/account")
            page.get_by_role("button", name="Log out", exact=True).click()
        page.goto(stack.api_url + path)
        require_accessible(page)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= NARROW, path
        if path in {"/account", "/login"}:
            keep(page, f"{path[1:]}-narrow-{scheme}")


def test_a_person_makes_a_key_and_ends_it_without_scripts_by_keyboard(
    stack: Stack, page: Page
) -> None:
    browser = page.context.browser
    assert browser
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    log_in(plain, stack, new_account(stack))
    plain.get_by_role("link", name="Your API keys").press("Enter")
    expect(plain.get_by_text("You have no key")).to_be_visible()
    plain.get_by_role("link", name="Make a key").press("Enter")
    plain.get_by_label("Name", exact=True).fill("upload script")
    plain.get_by_label(EXPLANATIONS[Scope.ATTACHMENT]).press("Space")
    plain.get_by_label("30 days").press("Space")
    plain.get_by_label("Name", exact=True).press("Enter")
    expect(plain.get_by_role("heading", level=1)).to_have_text("Your new API key")
    key = plain.get_by_label("upload script").input_value()
    with stack.client(key) as client:
        assert client.get("/attachments").status_code == 200
    plain.get_by_role("link", name="I have copied it").press("Enter")
    expect(plain.get_by_role("heading", level=2)).to_contain_text("upload script")
    expect(plain.get_by_text(EXPLANATIONS[Scope.ATTACHMENT])).to_be_visible()
    plain.get_by_role("link", name="End this key").press("Enter")
    plain.get_by_role("button", name="End it").press("Enter")
    expect(plain.get_by_text("You have no key")).to_be_visible()
    with stack.client(key) as client:
        assert client.get("/attachments").status_code == 401
    context.close()


def test_pages_of_keys_and_of_recovery_are_accessible(
    stack: Stack, page: Page, mailbox: Visitor, keep: Keep
) -> None:
    email, new = new_account(stack), new_address()
    stack.new_key(user_id_of(stack, email))
    log_in(page, stack, email)
    for path, heading in (
        ("/account/password", "Change your password"),
        ("/login?again=yes&next=/console/programs/keys/new", "Log in"),
    ):
        page.goto(stack.api_url + path)
        shows(page, heading)
        keep(page, f"recovery-{heading.lower().replace(' ', '-')}")
    mailbox.log_in(email)
    mailbox.fill_in("/account/email", email=new, current=PASSWORD)
    mailbox.fill_in(mailbox.mailed_path(new, "Confirm your new address"))
    undo = mailbox.mailed_path(email, "Your account has a new address")
    page.goto(stack.api_url + undo)
    shows(page, "Take your account back")
    keep(page, "take-back")
    page.get_by_role("button", name="Yes, take it back").click()
    shows(page, "Choose a new password")
    page.get_by_label("Password").fill(OTHER_PASSWORD)
    page.get_by_role("button", name="Save and log in").click()
    shows(page, "Your account")
    expect(page.get_by_role("main")).to_contain_text(email)
