"""Accounts in a real browser: what a person sees, fills in and presses, by keyboard too."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser import looks
from tests.browser.looks import Keep
from tests.stack import Stack
from tests.visiting import PASSWORD, Visitor, a_visitor, new_account, new_address

OTHER_PASSWORD = "an altogether other one"


@pytest.fixture
def mailbox(stack: Stack) -> Iterator[Visitor]:
    with a_visitor(stack) as visitor:
        yield visitor


def shows(page: Page, heading: str) -> None:
    looks.shows(page, heading)
    expect(page).to_have_title(re.compile(f"^{heading}( – Pressroom)?$"))


def log_in(page: Page, stack: Stack, email: str, password: str = PASSWORD) -> None:
    page.goto(f"{stack.api_url}/login")
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


@pytest.mark.both("browser")
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


@pytest.mark.full("browser")
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


@pytest.mark.full("browser")
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
    expect(page.get_by_role("status")).to_have_text("Logged out there.")
    assert not mailbox.is_in()


@pytest.mark.full("browser")
def test_a_person_changes_password_and_address(
    stack: Stack, page: Page, mailbox: Visitor, keep: Keep
) -> None:
    email, new = new_account(stack), new_address()
    log_in(page, stack, email)
    page.get_by_role("link", name="Password", exact=True).click()
    shows(page, "Change your password")
    keep(page, "account-password")
    page.get_by_label("Present password").fill(PASSWORD)
    page.get_by_label("New password").fill(OTHER_PASSWORD)
    page.get_by_role("button", name="Change my password").click()
    expect(page.get_by_role("status")).to_contain_text("Your password is changed")
    page.get_by_role("link", name="E-mail address").click()
    keep(page, "account-email")
    page.get_by_label("New e-mail address").fill(new)
    page.get_by_label("Password").fill(OTHER_PASSWORD)
    page.get_by_role("button", name="Send me the link").click()
    expect(page.get_by_role("status")).to_contain_text("mailing a link to the new address")
    page.goto(stack.api_url + mailbox.mailed_path(new, "Confirm your new address"))
    shows(page, "Confirm your new address")
    keep(page, "account-email-confirm")
    page.get_by_role("button", name="Yes, change it").click()
    expect(page.get_by_role("status")).to_have_text("Your account has its new address.")
    expect(page.get_by_role("main")).to_contain_text(new)


@pytest.mark.full("browser")
def test_a_person_takes_their_account_back(
    stack: Stack, page: Page, mailbox: Visitor, keep: Keep
) -> None:
    email, new = new_account(stack), new_address()
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
