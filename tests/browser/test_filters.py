"""Tests the filter builder in a browser: with and without scripts, by keyboard and on a phone."""

import json
from urllib.parse import urlencode

import httpx2
import pytest
from playwright.sync_api import Page, expect

from devstack.harness.stack import Owner, Stack
from tests.support.browser.accessibility import (
    WIDE_VIEWPORT,
    OpenPage,
    fits_width,
    require_accessible,
)
from tests.support.browser.consoles import log_in_browser
from tests.support.http.replies import data
from tests.support.lists.segments import new_field
from tests.support.lists.subscribers import new_list


def add_condition(page: Page, field: str, operator: str, value: str) -> None:
    """Add a condition to the first group, by keyboard alone."""
    field_select = page.get_by_label("Field", exact=True).last
    field_select.focus()
    field_select.select_option(label=field)
    wait_for_requests(page)
    page.get_by_role("button", name="Add condition").last.press("Enter")
    page.get_by_label(f"{field}: operator").select_option(label=operator)
    wait_for_requests(page)
    value_input = page.get_by_label(f"{field}: value")
    if value_input.evaluate("input => input.tagName") == "SELECT":
        value_input.select_option(label=value)
    else:
        value_input.fill(value)
    value_input.press("Tab")
    wait_for_requests(page)


def wait_for_requests(page: Page) -> None:
    """Wait until the page has received all responses to its requests.

    A script sends a request after each change of the filter form. If the test clicked before the
    response arrived, the browser would cancel the request.
    """
    expect(page.locator(".htmx-request")).to_have_count(0)


@pytest.mark.tier("fast", "browser")
def test_filter_with_a_long_value_fits_a_phone(
    stack: Stack, open_empty_page: OpenPage, owner: Owner, client: httpx2.Client
) -> None:
    page = open_empty_page()
    log_in_browser(page, stack, owner.user_id)
    query = urlencode({"filter": json.dumps({"field": "landing", "begins": "/" + "p" * 200})})
    page.set_viewport_size({"width": 360, "height": 780})
    page.goto(f"{stack.api_url}/console/lists/{new_list(client)['id']}/members?{query}")
    page.get_by_text("Filters", exact=True).click()
    page.get_by_text("As JSON", exact=True).click()
    assert fits_width(page, 360)


@pytest.mark.tier("fast", "browser")
@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_segment_can_be_built_counted_and_saved_with_and_without_scripts(
    stack: Stack, open_empty_page: OpenPage, owner: Owner, client: httpx2.Client, scripts: bool
) -> None:
    page = open_empty_page(scripts=scripts)
    log_in_browser(page, stack, owner.user_id)
    list_id = new_list(client)["id"]
    new_field(client, "city")
    for name, city, tag in (("ada", "Berlin", "press"), ("bob", "Rome", "press")):
        member = {"fields": {"city": city}, "tags": [tag]}
        data(client.put(f"/lists/{list_id}/members/{name}@example.com", json=member))
    page.goto(f"{stack.api_url}/console/lists/{list_id}/members")
    page.get_by_text("Filters", exact=True).press("Enter")
    add_condition(page, "City", "is", "Berlin")
    add_condition(page, "Tag", "is", "press")
    add_condition(page, "Joined", "is on or after", "2026-01-01")
    page.get_by_role("button", name="Apply filters").press("Enter")
    expect(page.get_by_role("link", name="Remove: City is Berlin")).to_be_visible()
    expect(page.get_by_role("link", name="ada@example.com")).to_be_visible()
    expect(page.get_by_role("link", name="bob@example.com")).to_have_count(0)
    if scripts:
        require_accessible(page)
    page.set_viewport_size({"width": 360, "height": 780})
    assert fits_width(page, 360)
    page.set_viewport_size(WIDE_VIEWPORT)
    page.get_by_role("link", name="Save as segment").press("Enter")
    page.get_by_label("Name", exact=True).fill("Press in Berlin")
    if scripts:
        create_button = page.get_by_role("button", name="Create segment")
        top_before = create_button.evaluate("each => each.offsetTop")
        page.get_by_label("City: value").fill("rome")
        page.get_by_label("Name", exact=True).focus()
        expect(page.locator("#count")).to_contain_text("1 member matches")
        # The updated count must not move the button, because keyboard users could lose sight of the
        # focused element.
        assert create_button.evaluate("each => each.offsetTop") == top_before
    else:
        page.get_by_role("button", name="Count members").press("Enter")
        expect(page.locator("#count")).to_contain_text("1 member matches")
    if scripts:
        require_accessible(page)
    page.get_by_role("button", name="Create segment").press("Enter")
    expect(page.get_by_role("status")).to_contain_text("was created")
    [segment] = data(client.get(f"/lists/{list_id}/segments"))["items"]
    assert {"field": "tag", "is": "press"} in segment["filter"]["all"]
