"""The sandbox's page of the stack's figures, as a person sees it."""

import httpx2
import pytest
from playwright.sync_api import expect

from tests.browser.looks import Keep, Open
from tests.stack import Stack


@pytest.mark.full("browser")
def test_the_status_draws_what_the_stack_does(stack: Stack, open_page: Open, keep: Keep) -> None:
    page = open_page(f"{stack.sandbox_url}/")
    page.get_by_role("link", name="Status").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Status")
    expect(page.get_by_text("database: up")).to_be_visible()
    requests = page.get_by_role("img", name="Requests:")
    # Two looks make a line.
    for _ in range(20):
        httpx2.get(f"{stack.api_url}/healthz")
    expect(requests.locator("polyline[points*=' ']")).to_have_count(1)
    keep(page, "status")
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    keep(page, "status-narrow")
