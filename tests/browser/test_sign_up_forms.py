"""A plain form on a page of another site, in a real browser that runs no scripts."""

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.foreign_site import Site
from tests.browser.looks import Open, require_accessible
from tests.docs import markdown
from tests.stack import Stack
from tests.subscribers import new_list

TITLE = "The Morning Letter"


@pytest.fixture
def page(open_ours: Open) -> Page:
    return open_ours(scripts=False)


def form(stack: Stack, list_id: int, redirect_url: str) -> str:
    """The form of docs/api.md, for this list."""
    [example] = [
        block.text
        for block in markdown.blocks(markdown.ROOT / "docs" / "api.md")
        if block.language == "html"
    ]
    action = "https://pressroom.example.com/subscriptions/4711"
    assert action in example
    page = example.replace(action, f"{stack.api_url}/subscriptions/{list_id}")
    page = page.replace("https://www.example.com/thanks", redirect_url)
    return f"<!doctype html><html lang=en><title>A site</title>{page}"


def addresses(client: httpx.Client, list_id: int) -> list[str]:
    found = client.get(f"/lists/{list_id}/subscriptions").json()["data"]["items"]
    return [each["email"] for each in found]


def test_a_person_subscribes_on_another_site_and_is_led_back(
    stack: Stack, client: httpx.Client, site: Site, page: Page
) -> None:
    mailing_list = new_list(client, TITLE, redirect_origins=[site.url])
    site.page = form(stack, mailing_list, f"{site.url}/thanks")
    page.goto(site.url)
    page.get_by_label("E-mail address").fill("reader@example.com")
    page.get_by_role("button", name="Subscribe").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Thanks")
    assert page.url == f"{site.url}/thanks"
    assert addresses(client, mailing_list) == ["reader@example.com"]


def test_a_person_whose_address_is_wrong_corrects_it_and_is_led_back(
    stack: Stack, client: httpx.Client, site: Site, page: Page
) -> None:
    mailing_list = new_list(client, TITLE, redirect_origins=[site.url])
    site.page = form(stack, mailing_list, f"{site.url}/thanks")
    page.goto(site.url)
    # Browsers take it for an address, and it is none.
    page.get_by_label("E-mail address").fill("reader@example")
    page.get_by_role("button", name="Subscribe").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Not subscribed yet")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_label("E-mail address")).to_have_value("reader@example")
    page.get_by_label("E-mail address").fill("reader@example.com")
    page.get_by_role("button", name="Subscribe").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Thanks")
    assert addresses(client, mailing_list) == ["reader@example.com"]


def test_a_person_from_a_site_that_is_not_allowed_ends_on_a_page_of_ours(
    stack: Stack, client: httpx.Client, site: Site, page: Page
) -> None:
    mailing_list = new_list(client, TITLE)
    site.page = form(stack, mailing_list, "https://evil.example/")
    page.goto(site.url)
    page.get_by_label("E-mail address").fill("reader@example.com")
    page.get_by_role("button", name="Subscribe").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Thank you")
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Thank you")
    assert addresses(client, mailing_list) == ["reader@example.com"]


@pytest.mark.full("browser")
def test_pages_of_ours_are_accessible(
    stack: Stack, client: httpx.Client, site: Site, open_ours: Open
) -> None:
    mailing_list = new_list(client, TITLE)
    site.page = form(stack, mailing_list, "")
    opened = open_ours()
    for address, heading in (
        ("reader@example", "Not subscribed yet"),
        ("reader@example.com", "Thank you"),
    ):
        opened.goto(site.url)
        opened.get_by_label("E-mail address").fill(address)
        opened.get_by_role("button", name="Subscribe").click()
        expect(opened.get_by_role("heading", level=1)).to_have_text(heading)
        require_accessible(opened)
