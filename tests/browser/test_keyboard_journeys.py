"""What an owner does in the console, by keyboard alone; the focus is seen at each press."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from core.scopes import EXPLANATIONS, Scope
from models import Plan
from services.accounts import accounts
from tests.browser.consoles import log_in_browser
from tests.browser.keyboards import PLAIN, WIDE, Circumstances, Keyboard, at_keyboard
from tests.contract.bulk import everybody, sheet
from tests.contract.credits import balance
from tests.contract.replies import data
from tests.hooks import hooked
from tests.stack import Owner, Stack
from tests.visiting import PASSWORD, a_visitor, new_address, user_id_of

pytestmark = pytest.mark.full("browser")
ROWS = 5_000
both = pytest.mark.parametrize(
    "circumstances", [WIDE, PLAIN], ids=["with scripts", "without scripts, narrow and dark"]
)


@pytest.fixture
def five_thousand(tmp_path: Path) -> Path:
    path = tmp_path / "readers.csv"
    people = ((f"k{number}.{new_address()}", f"K {number}", "Rome") for number in range(ROWS))
    path.write_bytes(sheet(["Mail", "Who", "Home town"], *people))
    return path


@both
def test_a_stranger_registers_makes_a_list_and_imports_and_undoes(
    stack: Stack, browser: Browser, five_thousand: Path, circumstances: Circumstances
) -> None:
    email = new_address()
    with at_keyboard(browser, circumstances) as keys:
        _register(keys, stack, email)
        # Only the operator of the deployment puts a person on the paid plan.
        with stack.resources.unit_of_work() as uow:
            accounts.set_plan(uow, email=email, plan=Plan.PAID)
        with stack.client(stack.new_key(user_id_of(stack, email))) as api:
            _make_a_list(keys, f"keys-{user_id_of(stack, email)}")
            [made] = data(api.get("/lists"))["items"]
            _look_at(keys, five_thousand)
            _map_its_columns(keys)
            keys.press("button", "Import it: 5,000 new members")
            expect(keys.page.get_by_role("status").first).to_have_text("The import has started.")
            keys.watch_until(keys.page.get_by_role("heading", name="Results by row"))
            assert data(api.get(f"/lists/{made['id']}"))["subscriber_count"] == ROWS
            # The first of them show how their columns were read.
            towns = {each["fields"]["home_town"] for each in everybody(api, made["id"]).values()}
            assert towns == {"Rome"}
            keys.press("link", "Undo this import")
            keys.shows("Undo the import of 5,000 members?")
            keys.press("button", "Undo it")
            keys.watch_until(keys.page.get_by_role("heading", name="The import is undone"))
            expect(keys.page.get_by_text("5,000 members are as before it")).to_be_visible()
            assert everybody(api, made["id"]) == {}


def _register(keys: Keyboard, stack: Stack, email: str) -> None:
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
    keys.walk()


def _make_a_list(keys: Keyboard, slug: str) -> None:
    keys.press("link", "Pressroom")
    keys.shows("Welcome, Ada")
    _skip_to_the_content(keys)
    keys.page.keyboard.press("Tab")
    keys.begins_at(keys.page.get_by_role("link", name="Create a list"))
    keys.enter()
    keys.shows("Create a list")
    keys.write("Title", "By keys alone")
    keys.write("URL", "Not a slug")
    keys.press("button", "Create the list")
    _begins_at_what_is_wrong(keys, "URL")
    keys.overwrite(slug)
    keys.enter()
    keys.shows("By keys alone")


def _skip_to_the_content(keys: Keyboard) -> None:
    """By the first of all controls."""
    keys.page.keyboard.press("Tab")
    keys.begins_at(keys.page.get_by_role("link", name="Skip to the content"))
    keys.page.keyboard.press("Enter")
    expect(keys.page.get_by_role("main")).to_be_focused()


def _look_at(keys: Keyboard, file: Path) -> None:
    empty = file.with_name("empty.csv")
    empty.touch()
    keys.press("link", "Imports", back=True)
    keys.press("link", "Import a file")
    keys.shows("Import a file")
    keys.choose_file("The file", empty)
    keys.reach("button", "Preview")
    keys.page.keyboard.press("Enter")
    _begins_at_what_is_wrong(keys, "The file")
    keys.choose_file("The file", file)
    keys.press("button", "Preview")
    keys.watch_until(keys.page.get_by_role("heading", name="Columns"))


def _map_its_columns(keys: Keyboard) -> None:
    keys.choose("Who", "Name")
    keys.choose("Home town", "Create a field")
    keys.press("button", "Refresh preview")
    keys.watch_until(keys.page.get_by_text("A new field: text"))
    keys.walk()
    keys.reach("combobox", "Who", back=True)


def _begins_at_what_is_wrong(keys: Keyboard, label: str) -> None:
    """The focus is on the field that is to be put right, and tells why."""
    field = keys.page.get_by_label(label, exact=True)
    keys.begins_at(field)
    expect(field).to_have_attribute("aria-invalid", "true")
    told = field.evaluate(
        "each => each.getAttribute('aria-describedby').trim().split(' ')"
        ".map(id => document.getElementById(id).innerText)"
    )
    assert all(told), told


@both
def test_an_owner_buys_credits_and_reads_the_receipt(
    stack: Stack, browser: Browser, owner: Owner, circumstances: Circumstances
) -> None:
    with at_keyboard(browser, circumstances) as keys, stack.client(owner.key) as api:
        _open_console(keys, stack, owner)
        keys.press("link", "Credits")
        keys.press("link", "Buy your first credits")
        keys.shows("Buy credits")
        keys.write("How many credits", "a lot")
        keys.enter()
        _begins_at_what_is_wrong(keys, "How many credits")
        keys.overwrite("1,250")
        keys.press("button", "Go on to the price")
        expect(keys.page.get_by_role("status").first).to_contain_text("Waits for your payment.")
        pay = keys.reach("link", "Pay 12.50 USD")
        if circumstances.scripts:
            _changes_by_itself(keys, "#state")
            keys.begins_at(pay)
        keys.enter()
        keys.shows("Pay 12.50 USD")
        keys.press("button", "Pay 12.50 USD")
        keys.watch_until(keys.page.get_by_text("The credits are in your balance."))
        assert balance(api) == 1250
        keys.press("link", "Receipt")
        [order] = data(api.get("/auxilia/credits/orders"))["items"]
        keys.shows(f"Receipt {order['order_id']}")


def _open_console(keys: Keyboard, stack: Stack, owner: Owner) -> None:
    log_in_browser(keys.page, stack, owner.user_id)
    keys.page.goto(f"{stack.api_url}/console")


def _changes_by_itself(keys: Keyboard, part: str) -> None:
    keys.page.locator(part).evaluate("each => { each.dataset.old = 'yes'; }")
    expect(keys.page.locator(f"{part}[data-old]")).to_have_count(0)
    expect(keys.page.locator(part)).to_be_visible()


@both
def test_an_owner_makes_a_key_and_copies_it(
    stack: Stack, browser: Browser, owner: Owner, circumstances: Circumstances
) -> None:
    with at_keyboard(browser, circumstances) as keys:
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
        if circumstances.scripts:
            keys.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
            keys.reach("button", "Copy: Upload script")
            keys.page.keyboard.press("Space")
            expect(keys.page.get_by_text("Copied", exact=True)).to_be_visible()
            copied = keys.page.evaluate("navigator.clipboard.readText()")
            assert copied == shown.input_value()
        keys.press("link", "Done")
        keys.shows("Your API keys")


@both
def test_an_owner_makes_a_webhook_and_tests_it(
    stack: Stack, browser: Browser, owner: Owner, circumstances: Circumstances
) -> None:
    with hooked() as receiver, at_keyboard(browser, circumstances) as keys:
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
