"""The owner's console in a real browser: a first list, its members, acts and the finder.

Each form and page is proven without a browser, in tests/contract/test_console_*; here is what
scripts do, and what people see of it.
"""

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.consoles import console_in, shows_console
from tests.browser.looks import IS_THOROUGH, Keep, require_accessible
from tests.contract.bulk import imported, of_addresses
from tests.contract.replies import data
from tests.contract.subscribers import new_list
from tests.stack import Stack


@pytest.mark.both("browser")
def test_an_owner_makes_a_list_finds_members_and_undoes_an_act(
    stack: Stack, browser: Browser, keep: Keep
) -> None:
    owner = stack.new_owner()
    with console_in(browser, stack, owner) as page, stack.client(owner.key) as api:
        page.goto(f"{stack.api_url}/account")
        page.get_by_role("link", name="Your console").click()
        page.get_by_role("link", name="Make a list").click()
        page.get_by_role("textbox", name="Title").fill("The Daily Demo")
        page.get_by_label("Name in URLs").fill("Not a slug")
        page.get_by_role("button", name="Make the list").click()
        expect(page.get_by_label("Name in URLs")).to_have_attribute("aria-invalid", "true")
        expect(page.get_by_role("textbox", name="Title")).to_have_value("The Daily Demo")
        keep(page, "console-new-list-refused")
        page.get_by_label("Name in URLs").fill(f"daily-{owner.user_id}")
        page.get_by_role("button", name="Make the list").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("The Daily Demo")
        expect(page.get_by_role("status")).to_contain_text("is made.")
        [made] = data(api.get("/lists"))["items"]
        imported(api, made["id"], of_addresses("ada@example.com", "bob@example.com"))

        page.get_by_role("link", name="Members").click()
        expect(page.get_by_role("link", name="bob@example.com")).to_be_visible()
        page.get_by_label("Address or name").press_sequentially("ada")
        expect(page.get_by_role("link", name="bob@example.com")).to_have_count(0)
        expect(page.get_by_role("link", name="ada@example.com")).to_be_visible()
        assert "q=ada" in page.url

        page.get_by_role("link", name="ada@example.com").click()
        page.get_by_label("Name", exact=True).fill("Ada")
        page.get_by_label("Tags").fill("vip")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status")).to_have_text("The member is changed.")
        keep(page, "console-member")

        page.get_by_role("link", name="Members").first.click()
        page.get_by_role("link", name="Change all of them").click()
        page.get_by_label("Switch their mail off").check()
        page.get_by_role("button", name="Do it to 2 members").click()
        state = page.locator("#state").get_by_role("status")
        expect(state.filter(has_text="Done: 2 of 2 changed")).to_be_visible()
        page.get_by_role("button", name="Undo it").click()
        expect(state.filter(has_text="Undone: 2 are as before")).to_be_visible()
        keep(page, "console-act-undone")
        ada = data(api.get(f"/lists/{made['id']}/members/ada@example.com"))
        assert (ada["name"], ada["tags"], ada["email_enabled"]) == ("Ada", ["vip"], True)


@pytest.mark.both("browser")
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
        if IS_THOROUGH:
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


def test_who_was_logged_out_is_led_back_after_the_login(stack: Stack, browser: Browser) -> None:
    owner = stack.new_owner()
    with console_in(browser, stack, owner) as page, stack.client(owner.key) as api:
        list_id = new_list(api, title="Letters")["id"]
        page.goto(f"{stack.api_url}/console/lists/{list_id}/members")
        page.context.clear_cookies()
        page.get_by_label("Address or name").press_sequentially("x")
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
        assert f"next=%2Fconsole%2Flists%2F{list_id}%2Fmembers" in page.url
