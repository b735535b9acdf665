"""Credits in a real browser: paid for on the provider's page, and a receipt to print."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.consoles import console_in
from tests.browser.looks import IS_THOROUGH, NARROW, Keep, fits, require_accessible
from tests.contract.credits import balance
from tests.contract.replies import data
from tests.stack import Owner, Stack


@pytest.mark.both("browser")
def test_credits_are_bought_paid_and_have_a_receipt_to_print(
    stack: Stack, browser: Browser, keep: Keep, owner: Owner
) -> None:
    with console_in(browser, stack, owner) as page, stack.client(owner.key) as api:
        page.goto(f"{stack.api_url}/console")
        page.get_by_role("link", name="Credits").click()
        page.get_by_role("link", name="Buy your first credits").click()
        page.get_by_label("How many credits").fill("a lot")
        page.get_by_role("button", name="Go on to the price").click()
        expect(page.get_by_label("How many credits")).to_have_attribute("aria-invalid", "true")
        expect(page.get_by_label("How many credits")).to_have_value("a lot")
        _is_usable(page)
        page.get_by_label("How many credits").fill("1,250")
        page.get_by_role("button", name="Go on to the price").click()
        expect(page.get_by_role("status")).to_contain_text("Waits for your payment.")
        _is_usable(page)
        keep(page, "console-order")

        page.get_by_role("link", name="Pay 12.50 USD").click()
        page.get_by_role("button", name="Pay", exact=False).first.click()
        paid = page.get_by_role("status").filter(has_text="Paid. The credits are in your balance.")
        expect(paid).to_be_visible()
        assert balance(api) == 1250

        page.get_by_role("link", name="Receipt").click()
        [order] = data(api.get("/auxilia/credits/orders"))["items"]
        expect(page.get_by_role("cell", name="12.50 USD")).to_have_count(2)
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Receipt {order['order_id']}")
        page.set_viewport_size({"width": NARROW, "height": 640})
        _is_usable(page)
        assert fits(page)
        page.emulate_media(media="print")
        for shown_on_paper, part in (
            (False, page.get_by_role("navigation", name="Console", include_hidden=True)),
            (False, page.get_by_role("navigation", name="Where you are", include_hidden=True)),
            (False, page.get_by_text("Do it by the API")),
            (True, page.get_by_role("article")),
        ):
            expect(part).to_be_visible(visible=shown_on_paper)
        keep(page, "console-receipt-print")


def _is_usable(page: Page) -> None:
    if IS_THOROUGH:
        require_accessible(page)
