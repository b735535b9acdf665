"""The owner's console in a real browser: a first list, its members, acts and the finder."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from api.console.navigation import OPERATORS
from tests.browser.consoles import console_in, fits, look_until, shows_console
from tests.browser.keyboards import Keyboard
from tests.browser.test_unsubscribe import NARROW, require_accessible
from tests.consoles import at_operators_console
from tests.contract.bulk import imported, of_addresses
from tests.contract.replies import data
from tests.contract.subscribers import new_list
from tests.security import world as worlds
from tests.security.console_calls import CONSOLE_CALLS
from tests.security.world import World, settled
from tests.stack import Owner, Stack

Keep = Callable[[Page, str], Path]
PAGES = [
    operation
    for operation, call in CONSOLE_CALLS.items()
    if operation.startswith("GET ") and "/assets/" not in operation
    if call.own == 200 or OPERATORS.path in operation
    if not operation.endswith("/events")
]


@pytest.fixture(scope="module")
def world(stack: Stack) -> Iterator[World]:
    """An owner with one thing of each kind that a page can show."""
    made = worlds.build(stack)
    settled(stack)
    yield made
    made.client.close()


@pytest.fixture(scope="module")
def operator(stack: Stack) -> Iterator[Owner]:
    with at_operators_console(stack) as found:
        yield found.owner


def name_of(path: str) -> str:
    """What the screenshot of a page is called."""
    return re.sub(r"[^a-z]+", "-", re.sub(r"{\w+}", "one", path).lower()).strip("-")


@pytest.mark.parametrize("operation", PAGES)
def test_a_page_is_accessible_by_eye_and_by_key_and_fits_a_narrow_screen(
    stack: Stack, browser: Browser, world: World, operator: Owner, *, keep: Keep, operation: str
) -> None:
    path = operation.removeprefix("GET ")
    named = {name: world.values[other] for name, other in CONSOLE_CALLS[operation].values.items()}
    visitor = operator if OPERATORS.path in path else world.owner
    for dark in (False, True):
        with console_in(browser, stack, visitor, dark=dark) as page:
            answer = page.goto(stack.api_url + path.format(**world.values | named))
            assert answer is not None
            assert answer.status == 200
            # What is folded away is looked at too.
            page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
            require_accessible(page)
            if not dark:
                keep(page, name_of(path))
            page.set_viewport_size({"width": NARROW, "height": 640})
            require_accessible(page)
            assert fits(page, NARROW)
            keep(page, f"{name_of(path)}-narrow-{'dark' if dark else 'light'}")
            if dark:
                # Each control is reached by Tab, and first of all the way past the navigation.
                assert Keyboard(page).walk()[0] == "a “Skip to the content”"


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_an_owner_makes_a_list_finds_members_and_undoes_an_act(
    stack: Stack, browser: Browser, keep: Keep, *, scripts: bool
) -> None:
    owner = stack.new_owner()
    with console_in(browser, stack, owner, scripts=scripts) as page, stack.client(owner.key) as api:
        page.goto(f"{stack.api_url}/account")
        page.get_by_role("link", name="Your console").click()
        page.get_by_role("link", name="Make a list").click()
        page.get_by_role("textbox", name="Title").fill("The Daily Demo")
        page.get_by_label("Name in URLs").fill("Not a slug")
        page.get_by_role("button", name="Make the list").click()
        expect(page.get_by_label("Name in URLs")).to_have_attribute("aria-invalid", "true")
        expect(page.get_by_role("textbox", name="Title")).to_have_value("The Daily Demo")
        keep(page, f"console-new-list-refused-{'js' if scripts else 'plain'}")
        page.get_by_label("Name in URLs").fill(f"daily-{owner.user_id}")
        page.get_by_role("button", name="Make the list").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("The Daily Demo")
        expect(page.get_by_role("status")).to_contain_text("is made.")
        [made] = data(api.get("/lists"))["items"]
        imported(api, made["id"], of_addresses("ada@example.com", "bob@example.com"))

        page.get_by_role("link", name="Members").click()
        expect(page.get_by_role("link", name="bob@example.com")).to_be_visible()
        page.get_by_label("Address or name").press_sequentially("ada")
        if not scripts:
            page.get_by_role("button", name="Find", exact=True).click()
        expect(page.get_by_role("link", name="bob@example.com")).to_have_count(0)
        expect(page.get_by_role("link", name="ada@example.com")).to_be_visible()
        assert "q=ada" in page.url

        page.get_by_role("link", name="ada@example.com").click()
        page.get_by_label("Name", exact=True).fill("Ada")
        page.get_by_label("Tags").fill("vip")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status")).to_have_text("The member is changed.")
        keep(page, f"console-member-{'js' if scripts else 'plain'}")

        page.get_by_role("link", name="Members").first.click()
        page.get_by_role("link", name="Change all of them").click()
        page.get_by_label("Switch their mail off").check()
        page.get_by_role("button", name="Do it to 2 members").click()
        _until_it_stands(page, "Done: 2 of 2 changed", scripts=scripts)
        page.get_by_role("button", name="Undo it").click()
        _until_it_stands(page, "Undone: 2 are as before", scripts=scripts)
        keep(page, f"console-act-undone-{'js' if scripts else 'plain'}")
        ada = data(api.get(f"/lists/{made['id']}/members/ada@example.com"))
        assert (ada["name"], ada["tags"], ada["email_enabled"]) == ("Ada", ["vip"], True)


def _until_it_stands(page: Page, words: str, *, scripts: bool) -> None:
    state = page.locator("#state").get_by_role("status")
    look_until(state.filter(has_text=words), scripts=scripts)


def test_the_finder_opens_by_its_keys_and_leads_on(
    stack: Stack, browser: Browser, keep: Keep
) -> None:
    owner = stack.new_owner()
    with console_in(browser, stack, owner) as page, stack.client(owner.key) as api:
        list_id = new_list(api, title="Letters to find")["id"]
        imported(api, list_id, of_addresses("letty@example.com"))
        page.goto(f"{stack.api_url}/console")
        for keys in ("Control+k", "Meta+k"):
            page.keyboard.press(keys)
            dialog = page.get_by_role("dialog", name="Find a list or a member")
            expect(dialog).to_be_visible()
            expect(page.locator(":focus")).to_have_attribute("type", "search")
            page.keyboard.press("Escape")
            expect(dialog).to_be_hidden()
        page.get_by_role("link", name="Find", exact=True).click()
        page.keyboard.type("lett")
        expect(dialog.get_by_role("link")).to_have_text(["Letters to find", "letty@example.com"])
        require_accessible(page)
        keep(page, "console-finder")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        shows_console(page, "letty@example.com")
        page.keyboard.press("Control+k")
        page.keyboard.type("letters")
        expect(page.get_by_role("dialog").get_by_role("link")).to_have_count(1)
        page.keyboard.press("Enter")
        shows_console(page, "Letters to find")


def test_the_finder_is_a_page_without_scripts(stack: Stack, browser: Browser) -> None:
    owner = stack.new_owner()
    with (
        console_in(browser, stack, owner, scripts=False) as page,
        stack.client(owner.key) as api,
    ):
        new_list(api, title="Letters to find")
        page.goto(f"{stack.api_url}/console")
        page.get_by_role("link", name="Find", exact=True).click()
        page.get_by_role("searchbox").fill("letters")
        page.get_by_role("button", name="Find", exact=True).click()
        page.get_by_role("link", name="Letters to find").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Letters to find")


def test_who_was_logged_out_is_led_back_after_the_login(stack: Stack, browser: Browser) -> None:
    owner = stack.new_owner()
    with console_in(browser, stack, owner) as page, stack.client(owner.key) as api:
        list_id = new_list(api, title="Letters")["id"]
        page.goto(f"{stack.api_url}/console/lists/{list_id}/members")
        page.context.clear_cookies()
        page.get_by_label("Address or name").press_sequentially("x")
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
        assert f"next=%2Fconsole%2Flists%2F{list_id}%2Fmembers" in page.url
