"""Tests of the console's menus, and of the sizes of its rows and buttons."""

import httpx2
import pytest
from playwright.sync_api import Page, expect

from devstack.harness.stack import Owner, Stack
from tests.support.browser.accessibility import OpenPage, fits_width, require_no_violations
from tests.support.browser.consoles import log_in_browser
from tests.support.browser.keyboards import Keyboard
from tests.support.imports.bulk import build_address_file, import_members_file
from tests.support.lists.subscribers import new_list

pytestmark = pytest.mark.tier("browser")
PHONE = {
    "viewport": {"width": 360, "height": 640},
    "has_touch": True,
    "is_mobile": True,
}


@pytest.fixture(params=[True, False], ids=["with scripts", "without scripts"])
def phone_page(
    request: pytest.FixtureRequest, open_page: OpenPage, stack: Stack, owner: Owner
) -> Page:
    """The page of a phone on which the owner is logged in to the console."""
    page = open_page("about:blank", scripts=request.param, **PHONE)
    log_in_browser(page, stack, owner.user_id)
    return page


def test_phone_has_a_bar_of_five_entries_and_a_menu_of_all_pages(
    stack: Stack, phone_page: Page, client: httpx2.Client
) -> None:
    list_id = new_list(client, title="Tea & Co")["id"]
    phone_page.goto(f"{stack.api_url}/console/lists/{list_id}/settings")
    bar = phone_page.get_by_role("navigation", name="Shortcuts")
    expect(bar.get_by_role("link")).to_have_text(["Overview", "Growth", "Members", "Find"])
    menu = phone_page.get_by_role("navigation", name="Console")
    expect(menu).to_be_hidden()
    expect(phone_page.get_by_role("banner").get_by_role("link", name="Tea & Co")).to_be_visible()
    more = bar.get_by_role("button", name="More")
    more.tap()
    expect(menu.get_by_role("link", name="Sign-up", exact=True)).to_be_in_viewport()
    assert fits_width(phone_page, 360)
    more.tap()
    expect(menu).to_be_hidden()
    more.tap()
    menu.get_by_role("link", name="All lists").tap()
    expect(phone_page.get_by_role("heading", level=1)).to_have_text("Your lists")
    expect(bar.get_by_role("link")).to_have_text(["Overview", "Lists", "Images", "Find"])


def test_open_menu_of_a_phone_is_accessible(
    stack: Stack, owner: Owner, client: httpx2.Client, open_page: OpenPage
) -> None:
    page = open_page("about:blank", color_scheme="dark", **PHONE)
    log_in_browser(page, stack, owner.user_id)
    page.goto(f"{stack.api_url}/console/lists/{new_list(client)['id']}")
    page.get_by_role("button", name="More").tap()
    expect(page.get_by_role("link", name="All lists").last).to_be_visible()
    require_no_violations(page)
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="More")).to_be_focused()


def test_bar_of_a_phone_covers_neither_the_end_of_the_page_nor_the_buttons_of_a_form(
    stack: Stack, phone_page: Page, client: httpx2.Client
) -> None:
    list_id = new_list(client)["id"]
    phone_page.goto(f"{stack.api_url}/console/lists/{list_id}/settings")
    bar = phone_page.get_by_role("navigation", name="Shortcuts").bounding_box()
    save = phone_page.get_by_role("button", name="Save").bounding_box()
    assert bar
    assert save
    assert bar["y"] + bar["height"] == 640
    assert save["y"] + save["height"] <= bar["y"]
    phone_page.evaluate("scrollTo(0, document.body.scrollHeight)")
    summary = phone_page.get_by_text("Show API call").bounding_box()
    assert summary
    assert summary["y"] + summary["height"] <= bar["y"]


def test_bar_of_a_phone_does_not_cover_a_text_area_that_gets_the_focus(
    stack: Stack, owner: Owner, client: httpx2.Client, open_page: OpenPage
) -> None:
    page = open_page("about:blank", **PHONE)
    log_in_browser(page, stack, owner.user_id)
    page.goto(f"{stack.api_url}/console/lists/{new_list(client)['id']}/public")
    field = page.get_by_role("textbox", name="HTML of the form")
    field.focus()
    for distance in range(80, 160, 8):
        page.keyboard.press("Shift+Tab")
        # The browser scrolls only if the first line of the field is below the scroll padding.
        field.evaluate(
            "(field, distance) =>"
            " scrollBy(0, field.getBoundingClientRect().top - innerHeight + distance)",
            distance,
        )
        page.keyboard.press("Tab")
        Keyboard(page).begins_at(field)


@pytest.mark.parametrize(("has_touch", "height"), [(False, 36), (True, 48)])
def test_rows_fields_and_buttons_have_the_height_of_the_pointer(
    stack: Stack,
    owner: Owner,
    client: httpx2.Client,
    open_page: OpenPage,
    *,
    has_touch: bool,
    height: int,
) -> None:
    page = open_page("about:blank", has_touch=has_touch, is_mobile=has_touch)
    log_in_browser(page, stack, owner.user_id)
    new_list(client)
    page.goto(f"{stack.api_url}/console/lists")
    row = page.get_by_role("table").get_by_role("row").last.bounding_box()
    assert row
    assert row["height"] == pytest.approx(height, abs=1)
    page.goto(f"{stack.api_url}/console/lists/new")
    for each in (
        page.get_by_role("button", name="Create list"),
        page.get_by_role("textbox", name="Title"),
    ):
        box = each.bounding_box()
        assert box
        assert box["height"] == pytest.approx(height, abs=1)


def test_console_uses_only_six_sizes_of_type(
    stack: Stack, owner: Owner, client: httpx2.Client, open_page: OpenPage
) -> None:
    page = open_page("about:blank")
    log_in_browser(page, stack, owner.user_id)
    list_id = new_list(client)["id"]
    import_members_file(client, list_id, build_address_file("ada@example.com"))
    list_path = f"/console/lists/{list_id}"
    sizes = set()
    for path in (
        *("/console", list_path, f"{list_path}/members", f"{list_path}/public"),
        *("/console/credits", "/console/developers/webhooks/new", "/console/composer", "/account"),
    ):
        page.goto(stack.api_url + path)
        sizes |= set(
            page.evaluate(
                """() => [...document.querySelectorAll("body *")]
                .filter((each) => each.checkVisibility())
                .filter((each) => [...each.childNodes].some((node) => node.nodeName === "#text"
                    && node.data.trim()))
                .map((each) => getComputedStyle(each).fontSize)"""
            )
        )
    assert sizes <= {f"{size}px" for size in (13, 14, 16, 20, 28, 40)}
