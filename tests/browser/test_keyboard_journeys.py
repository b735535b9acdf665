"""What an owner does in the console, by keyboard alone; the focus is seen at each press."""

import httpx2
import pytest
from playwright.sync_api import expect

from core.scopes import EXPLANATIONS, Scope
from devstack.harness.stack import Owner, Stack
from tests.support.browser.consoles import log_in_browser
from tests.support.browser.keyboards import Keyboard
from tests.support.credits.credits import balance
from tests.support.http.replies import data
from tests.support.http.webhook_receiver import hooked
from tests.support.people.visiting import PASSWORD, a_visitor, new_address, user_id_of

pytestmark = pytest.mark.tier("browser")


def test_a_stranger_registers_and_makes_a_list(stack: Stack, keys: Keyboard) -> None:
    email = new_address()
    keys.page.goto(f"{stack.api_url}/register")
    # A browser takes it for an address, and it is none.
    keys.write("E-mail address", "ada@example")
    keys.press("button", "Send me the link")
    keys.begins_at(keys.page.get_by_role("alert"))
    keys.write("E-mail address", email)
    keys.press("button", "Send me the link")
    keys.shows("Look into your mailbox")
    with a_visitor(stack) as mailbox:
        path = mailbox.mailed_path(email, "Finish your registration")
    keys.page.goto(stack.api_url + path)
    keys.write("Your name", "Ada")
    keys.write("Password", PASSWORD)
    keys.press("button", "Make my account")
    keys.shows("Your account")
    keys.press("link", "Pressroom")
    keys.shows("Welcome, Ada")
    # By the first of all controls.
    keys.page.keyboard.press("Tab")
    keys.begins_at(keys.page.get_by_role("link", name="Skip to the content"))
    keys.page.keyboard.press("Enter")
    expect(keys.page.get_by_role("main")).to_be_focused()
    keys.page.keyboard.press("Tab")
    keys.begins_at(keys.page.get_by_role("link", name="Create a list"))
    keys.enter()
    keys.shows("Create a list")
    keys.write("Title", "By keys alone")
    keys.write("URL", "Not a slug")
    keys.press("button", "Create the list")
    keys.begins_at_what_is_wrong("URL")
    keys.overwrite(f"keys-{user_id_of(stack, email)}")
    keys.enter()
    keys.shows("By keys alone")


def test_an_owner_buys_credits_and_reads_the_receipt(
    stack: Stack, keys: Keyboard, owner: Owner, client: httpx2.Client
) -> None:
    _open_console(keys, stack, owner)
    keys.press("link", "Credits")
    keys.press("link", "Buy your first credits")
    keys.shows("Buy credits")
    keys.write("How many credits", "a lot")
    keys.enter()
    keys.begins_at_what_is_wrong("How many credits")
    keys.overwrite("1,250")
    keys.press("button", "Go on to the price")
    expect(keys.page.get_by_role("status").first).to_contain_text("Waits for your payment.")
    pay = keys.reach("link", "Pay 12.50 USD")
    if keys.scripts:
        _changes_by_itself(keys, "#state")
        keys.begins_at(pay)
    keys.enter()
    keys.shows("Pay 12.50 USD")
    keys.press("button", "Pay 12.50 USD")
    keys.watch_until(keys.page.get_by_text("The credits are in your balance."))
    assert balance(client) == 1250
    keys.press("link", "Receipt")
    [order] = data(client.get("/auxilia/credits/orders"))["items"]
    keys.shows(f"Receipt {order['order_id']}")
    page = keys.page
    page.emulate_media(media="print")
    for shown_on_paper, part in (
        (False, page.get_by_role("navigation", name="Console", include_hidden=True)),
        (False, page.get_by_role("navigation", name="Where you are", include_hidden=True)),
        (False, page.get_by_text("Show API call")),
        (True, page.get_by_role("article")),
    ):
        expect(part).to_be_visible(visible=shown_on_paper)


def _open_console(keys: Keyboard, stack: Stack, owner: Owner) -> None:
    log_in_browser(keys.page, stack, owner.user_id)
    keys.page.goto(f"{stack.api_url}/console")


def _changes_by_itself(keys: Keyboard, part: str) -> None:
    keys.page.locator(part).evaluate("each => { each.dataset.old = 'yes'; }")
    expect(keys.page.locator(f"{part}[data-old]")).to_have_count(0)
    expect(keys.page.locator(part)).to_be_visible()


def test_an_owner_makes_a_key_and_copies_it(stack: Stack, keys: Keyboard, owner: Owner) -> None:
    _open_console(keys, stack, owner)
    keys.press("link", "Developers")
    keys.press("link", "Create a key")
    keys.shows("Create an API key")
    keys.write("Name", "Upload script")
    keys.enter()
    expect(keys.page.get_by_text("Tick what the key may do.")).to_be_visible()
    keys.begins_at(keys.page.get_by_role("radio", name="Only what is ticked below"))
    keys.tick(EXPLANATIONS[Scope.ATTACHMENT])
    keys.reach("radio", "90 days")
    keys.page.keyboard.press("ArrowUp")
    expect(keys.page.get_by_role("radio", name="30 days")).to_be_checked()
    keys.press("button", "Create the key")
    keys.shows("Your new API key")
    shown = keys.reach("textbox", "Upload script")
    with stack.client(shown.input_value()) as program:
        data(program.get("/attachments"))
    if keys.scripts:
        keys.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        keys.reach("button", "Copy: Upload script")
        keys.page.keyboard.press("Space")
        expect(keys.page.get_by_text("Copied", exact=True)).to_be_visible()
        copied = keys.page.evaluate("navigator.clipboard.readText()")
        assert copied == shown.input_value()
    keys.press("link", "Done")
    keys.shows("Your API keys")


def test_an_owner_makes_a_webhook_and_tests_it(stack: Stack, keys: Keyboard, owner: Owner) -> None:
    with hooked() as receiver:
        _open_console(keys, stack, owner)
        keys.press("link", "Developers")
        keys.press("link", "Create a webhook")
        keys.shows("Create a webhook")
        keys.write("URL", receiver.url)
        keys.press("button", "Create the webhook")
        keys.begins_at(keys.page.get_by_text("Tick at least one kind of event."))
        keys.tick("A person left", exact=False)
        keys.press("button", "Create the webhook")
        keys.shows("Your new webhook")
        secret = keys.reach("textbox", f"Secret for {receiver.url}").input_value()
        keys.press("link", "Done")
        keys.press("button", "Send a test event")
        keys.watch_until(keys.page.get_by_role("cell", name="delivered"))
        keys.press("button", "Send again", exact=False)
        keys.watch_until(keys.page.get_by_role("cell", name="2", exact=True))
        for hook in receiver.hooks:
            hook.check(secret)
        assert len(receiver.hooks) == 2
