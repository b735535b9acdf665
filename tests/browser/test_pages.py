"""Tests in a browser of the API reference and the sandbox's status page."""

import httpx2
import pytest
from playwright.sync_api import Page, expect

from devstack.harness.stack import Owner, Stack
from tests.support.browser.accessibility import OpenPage, require_no_violations


def open_groups(page: Page) -> None:
    """Open all groups of operations in the API reference.

    The function waits for the first group of operations, because the page draws the groups only
    after the page has fetched the OpenAPI document.
    """
    buttons = page.locator(".opblock-tag button")
    buttons.first.wait_for()
    for button in buttons.all():
        button.click()


@pytest.mark.tier("browser")
def test_api_docs_page_shows_every_operation_without_network(
    stack: Stack, open_page: OpenPage
) -> None:
    page = open_page(f"{stack.api_url}/docs")
    operations = page.locator(".opblock")
    expect(page.locator(".opblock-tag").first).to_be_visible()
    document = httpx2.get(f"{stack.api_url}/openapi.json").json()
    # The API reference hides operations in closed groups. All groups are closed at first, so the
    # page shows only the webhooks, which belong to no group.
    expect(operations).to_have_count(len(document["webhooks"]))
    expect(page.get_by_role("link", name="Console")).to_have_attribute("href", "console")
    open_groups(page)
    documented_items = [*document["paths"].values(), *document["webhooks"].values()]
    expect(operations).to_have_count(sum(len(methods) for methods in documented_items))
    expect(page.locator("h1, h2").first).to_contain_text("Pressroom")
    upload = page.locator(".opblock-post", has_text="/attachments").first
    upload.locator(".opblock-summary").click()
    expect(upload).to_contain_text("Scope: attachment.")
    expect(upload).to_contain_text("multipart/form-data")
    # The page shows an example of the operation's response, and examples of its errors.
    expect(upload).to_contain_text("k3v09xq2m7ta.webp")
    expect(upload).to_contain_text("The form has no file in the part 'file'.")
    upload.get_by_role("button", name="Try it out").click()
    expect(upload.locator("input[type=file]")).to_be_visible()


@pytest.mark.tier("browser")
def test_api_docs_page_can_call_an_operation_with_a_key(
    stack: Stack, owner: Owner, open_page: OpenPage
) -> None:
    page = open_page(f"{stack.api_url}/docs")
    page.get_by_role("button", name="Authorize").first.click()
    page.locator("#auth-bearer-value").fill(owner.key)
    bearer_form = page.locator(".auth-container", has_text="bearer")
    bearer_form.get_by_role("button", name="Apply credentials").click()
    page.locator(".close-modal").click()
    open_groups(page)
    operation = page.locator(".opblock-get", has_text="/users/me").first
    operation.locator(".opblock-summary").click()
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_role("button", name="Execute").click()
    expect(operation.locator(".live-responses-table")).to_contain_text(owner.email)


@pytest.mark.tier("browser")
def test_api_docs_page_follows_the_colour_scheme_and_fits_a_phone(
    stack: Stack, open_page: OpenPage
) -> None:
    page = open_page(f"{stack.api_url}/docs")
    group = page.locator(".opblock-tag").first
    expect(group).to_be_visible()
    background = "getComputedStyle(document.documentElement).backgroundColor"
    light_colour = page.evaluate(background)
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_class("dark-mode")
    assert page.evaluate(background) != light_colour
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    name_box = group.locator("a").bounding_box()
    description_box = group.locator("small").bounding_box()
    assert name_box
    assert description_box
    # On a phone, the description of a group of operations is below the group's name, and uses most
    # of the width.
    assert description_box["y"] >= name_box["y"] + name_box["height"]
    assert description_box["width"] > 250


@pytest.mark.tier("browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_api_docs_page_and_an_open_operation_are_accessible(
    stack: Stack, open_page: OpenPage, scheme: str
) -> None:
    page = open_page(f"{stack.api_url}/docs", color_scheme=scheme)
    open_groups(page)
    operation = page.locator("#operations-Lists-create_list")
    operation.locator(".opblock-summary-control").click()
    expect(operation.locator(".responses-table")).to_be_visible()
    require_no_violations(page)


@pytest.mark.tier("browser")
def test_sandbox_status_page_draws_current_metrics(stack: Stack, open_page: OpenPage) -> None:
    page = open_page(f"{stack.sandbox_url}/")
    page.get_by_role("link", name="Status").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Status")
    expect(page.get_by_text("database: up")).to_be_visible()
    requests = page.get_by_role("img", name="Requests:")
    # The chart shows a line as soon as the page has read the metrics twice.
    for _ in range(20):
        httpx2.get(f"{stack.api_url}/healthz")
    expect(requests.locator("polyline[points*=' ']")).to_have_count(1)
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
