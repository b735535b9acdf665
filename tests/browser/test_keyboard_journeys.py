"""Tests that people can use the console with only the keyboard, and always see the focus."""

import httpx2
import pytest
from playwright.sync_api import expect

from core.scopes import SCOPE_EXPLANATIONS, Scope
from devstack.harness.stack import Owner, Stack
from tests.support.browser.consoles import log_in_browser
from tests.support.browser.keyboards import Keyboard
from tests.support.credits.credits import balance
from tests.support.http.replies import data
from tests.support.http.webhook_receiver import running_receiver
from tests.support.people.visiting import PASSWORD, new_address, new_visitor, user_id_of

pytestmark = pytest.mark.tier("browser")


def test_stranger_can_register_and_create_a_list_by_keyboard(
    stack: Stack, keyboard: Keyboard
) -> None:
    email = new_address()
    keyboard.page.goto(f"{stack.api_url}/register")
    # The browser accepts an address without a top-level domain, but Pressroom rejects such an
    # address.
    keyboard.write("E-mail address", "ada@example")
    keyboard.press("button", "Send me the link")
    keyboard.begins_at_first_error("E-mail address")
    keyboard.write("E-mail address", email)
    keyboard.press("button", "Send me the link")
    keyboard.shows("Check your e-mail")
    with new_visitor(stack) as mailbox:
        path = mailbox.mailed_path(email, "Finish creating your account")
    keyboard.page.goto(stack.api_url + path)
    keyboard.write("Your name (optional)", "Ada")
    keyboard.write("Password", PASSWORD)
    keyboard.press("button", "Create my account")
    keyboard.shows("Welcome, Ada")
    # The first control on the page is a link that skips the navigation.
    keyboard.page.keyboard.press("Tab")
    keyboard.begins_at(keyboard.page.get_by_role("link", name="Skip to content"))
    keyboard.page.keyboard.press("Enter")
    expect(keyboard.page.get_by_role("main")).to_be_focused()
    keyboard.page.keyboard.press("Tab")
    keyboard.begins_at(keyboard.page.get_by_role("link", name="Create a list"))
    keyboard.enter()
    keyboard.shows("Create a list")
    keyboard.write("Title", "By keys alone")
    keyboard.write("Web address (optional)", "Not a slug")
    keyboard.press("button", "Create list")
    keyboard.begins_at_first_error("Web address (optional)")
    keyboard.overwrite(f"keys-{user_id_of(stack, email)}")
    keyboard.enter()
    keyboard.shows("By keys alone")


def test_owner_can_buy_credits_and_print_the_receipt_by_keyboard(
    stack: Stack, keyboard: Keyboard, owner: Owner, client: httpx2.Client
) -> None:
    _open_console(keyboard, stack, owner)
    _follow_menu(keyboard, "Credits")
    keyboard.press("link", "Buy credits")
    keyboard.shows("Buy credits")
    keyboard.reach("radio", "500 credits", exact=False)
    # From the first radio button, the arrow key up selects the last radio button.
    keyboard.page.keyboard.press("ArrowUp")
    keyboard.write("Number of credits", "a lot")
    keyboard.enter()
    keyboard.begins_at_first_error("Number of credits")
    keyboard.overwrite("1,250")
    keyboard.press("button", "Continue")
    expect(keyboard.page.get_by_role("status").first).to_contain_text("Waiting for your payment")
    pay_link = keyboard.reach("link", "Pay 12.50 USD")
    if keyboard.scripts:
        _wait_for_replacement(keyboard, "#state")
        keyboard.begins_at(pay_link)
    keyboard.enter()
    keyboard.shows("Pay 12.50 USD")
    keyboard.press("button", "Pay 12.50 USD")
    keyboard.watch_until(keyboard.page.get_by_text("The credits are in your balance."))
    assert balance(client) == 1250
    keyboard.press("link", "Receipt")
    [order] = data(client.get("/auxilia/credits/orders"))["items"]
    keyboard.shows(f"Receipt {order['order_id']}")
    page = keyboard.page
    page.emulate_media(media="print")
    for is_printed, part in (
        (False, page.get_by_role("navigation", name="Console", include_hidden=True)),
        (False, page.get_by_role("link", name=f"Order {order['order_id']}", include_hidden=True)),
        (False, page.get_by_text("Show API call")),
        (True, page.get_by_role("article")),
    ):
        expect(part).to_be_visible(visible=is_printed)


def _open_console(keyboard: Keyboard, stack: Stack, owner: Owner) -> None:
    log_in_browser(keyboard.page, stack, owner.user_id)
    keyboard.page.goto(f"{stack.api_url}/console")


def _follow_menu(keyboard: Keyboard, label: str) -> None:
    """Follow a link of the console's menu, which a narrow window shows only on demand."""
    if not keyboard.page.get_by_role("navigation", name="Console").is_visible():
        keyboard.reach("button", "More")
        keyboard.page.keyboard.press("Enter")
    keyboard.press("link", label)


def _wait_for_replacement(keyboard: Keyboard, part: str) -> None:
    keyboard.page.locator(part).evaluate("each => { each.dataset.old = 'yes'; }")
    expect(keyboard.page.locator(f"{part}[data-old]")).to_have_count(0)
    expect(keyboard.page.locator(part)).to_be_visible()


def test_owner_can_create_and_copy_an_api_key_by_keyboard(
    stack: Stack, keyboard: Keyboard, owner: Owner
) -> None:
    _open_console(keyboard, stack, owner)
    _follow_menu(keyboard, "Developers")
    keyboard.press("link", "Create a key")
    keyboard.shows("Create an API key")
    keyboard.write("Name", "Upload script")
    keyboard.enter()
    expect(keyboard.page.get_by_text("Select at least one permission.")).to_be_visible()
    keyboard.begins_at(
        keyboard.page.get_by_role("radio", name="Only the permissions selected below")
    )
    keyboard.tick(SCOPE_EXPLANATIONS[Scope.ATTACHMENT])
    expiry = keyboard.reach("combobox", "Expiry")
    expect(expiry).to_have_value("90")
    keyboard.page.keyboard.press("ArrowUp")
    expect(expiry).to_have_value("30")
    keyboard.press("button", "Create key")
    keyboard.shows("Your new API key")
    key_field = keyboard.reach("textbox", "Upload script")
    with stack.client(key_field.input_value()) as program:
        data(program.get("/attachments"))
    if keyboard.scripts:
        keyboard.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        keyboard.reach("button", "Copy: Upload script")
        keyboard.page.keyboard.press("Space")
        expect(keyboard.page.get_by_text("Copied", exact=True)).to_be_visible()
        copied_text = keyboard.page.evaluate("navigator.clipboard.readText()")
        assert copied_text == key_field.input_value()
    keyboard.press("link", "Done")
    keyboard.shows("Your API keys")


def test_owner_can_create_and_test_a_webhook_by_keyboard(
    stack: Stack, keyboard: Keyboard, owner: Owner
) -> None:
    with running_receiver() as receiver:
        _open_console(keyboard, stack, owner)
        _follow_menu(keyboard, "Developers")
        keyboard.press("link", "Create a webhook")
        keyboard.shows("Create a webhook")
        keyboard.write("URL", receiver.url)
        keyboard.clear_checkboxes()
        keyboard.press("button", "Create webhook")
        keyboard.begins_at(keyboard.page.get_by_text("Select at least one event type."))
        keyboard.tick("A member unsubscribed", exact=False)
        keyboard.press("button", "Create webhook")
        keyboard.shows("Your new webhook")
        secret = keyboard.reach("textbox", f"Secret for {receiver.url}").input_value()
        keyboard.press("link", "Done")
        keyboard.press("button", "Send a test event")
        keyboard.watch_until(keyboard.page.get_by_role("cell", name="Delivered"))
        keyboard.press("link", "Test event")
        keyboard.press("button", "Resend")
        keyboard.watch_until(keyboard.page.get_by_role("cell", name="Delivered 2 attempts"))
        for hook in receiver.hooks:
            hook.check(secret)
        assert len(receiver.hooks) == 2
