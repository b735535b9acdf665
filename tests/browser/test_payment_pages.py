"""Tests the sandbox's pages that replace Stripe, for buyers and for operators, in a browser."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from devstack.sandbox.stripe.objects import StripeKeys
from integrations.payments.stripe import StripeCheckout
from tests.support.browser import accessibility
from tests.support.browser.accessibility import (
    IS_THOROUGH,
    NARROW_WIDTH,
    WIDE_VIEWPORT,
    OpenPage,
    fits_width,
)
from tests.support.credits.payments import (
    SandboxPayments,
    build_checkout,
    connect_adapter,
    running_payment_sandbox,
)


@pytest.fixture(scope="module")
def stripe_keys() -> StripeKeys:
    """Stripe keys without a webhook URL, because tests of the payment pages need no webhooks."""
    return StripeKeys()


@pytest.fixture(scope="module")
def sandbox_url(stripe_keys: StripeKeys) -> Iterator[str]:
    with running_payment_sandbox(stripe_keys) as url:
        yield url


@pytest.fixture
def payment_sandbox(sandbox_url: str) -> Iterator[SandboxPayments]:
    """A client with which a test controls the sandbox that replaces Stripe."""
    sandbox = SandboxPayments(sandbox_url)
    yield sandbox
    sandbox.close()


@pytest.fixture
def account(sandbox_url: str, stripe_keys: StripeKeys) -> StripeCheckout:
    return connect_adapter(f"{sandbox_url}/stripe", stripe_keys)


@pytest.fixture
def payment_url(account: StripeCheckout, sandbox_url: str) -> str:
    """The URL of the page on which a buyer pays for a new order."""
    return account.open_checkout(
        build_checkout(123456, return_url=f"{sandbox_url}/?back=1")
    ).payment_url


def require_accessible(page: Page) -> None:
    page.set_viewport_size({"width": NARROW_WIDTH, "height": 700})
    assert fits_width(page)
    page.set_viewport_size(WIDE_VIEWPORT)
    if IS_THOROUGH:
        accessibility.require_accessible(page)


@pytest.mark.tier("fast", "browser")
def test_sandbox_payment_page_can_be_paid_by_keyboard_and_redirects_back(
    open_page: OpenPage, payment_sandbox: SandboxPayments, payment_url: str
) -> None:
    page = open_page(payment_url)
    expect(page.get_by_role("heading", level=1)).to_have_text("Pay 1,234.56 USD")
    expect(page.get_by_text("This page simulates Stripe Checkout.")).to_be_visible()
    assert page.locator("script").count() == 0
    require_accessible(page)
    pay_button = page.get_by_role("button", name="Pay 1,234.56 USD")
    page.keyboard.press("Tab")
    expect(pay_button).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/?back=1")
    assert payment_sandbox.session(payment_url)["payment_status"] == "paid"
    page.goto(payment_url)
    expect(page.get_by_text("The payment succeeded.")).to_be_visible()
    expect(page.get_by_role("button")).to_have_count(0)
    page.get_by_role("link", name="Go back").click()
    page.wait_for_url("**/?back=1")


@pytest.mark.tier("browser")
def test_sandbox_payment_can_be_cancelled_and_paid_later_after_declined_card(
    open_page: OpenPage, payment_sandbox: SandboxPayments, payment_url: str
) -> None:
    page = open_page(payment_url)
    page.get_by_role("button", name="Cancel and go back").click()
    page.wait_for_url("**/?back=1")
    assert payment_sandbox.session(payment_url)["status"] == "open"
    page.goto(payment_url)
    page.get_by_role("button", name="Decline the card").click()
    expect(page.get_by_role("alert")).to_contain_text("The card was declined.")
    require_accessible(page)
    page.get_by_role("button", name="Pay 1,234.56 USD").click()
    page.wait_for_url("**/?back=1")
    assert payment_sandbox.session(payment_url)["payment_status"] == "paid"


@pytest.mark.tier("browser")
def test_expired_sandbox_payment_page_rejects_payment_even_from_an_open_tab(
    open_page: OpenPage, payment_sandbox: SandboxPayments, payment_url: str
) -> None:
    page = open_page(payment_url)
    other_page = open_page(payment_url)
    other_page.get_by_role("button", name="Expire this page").click()
    expect(other_page.get_by_text("This page has expired.")).to_be_visible()
    require_accessible(other_page)
    page.get_by_role("button", name="Pay 1,234.56 USD").click()
    expect(page.get_by_role("alert")).to_have_text("This checkout is expired.")
    assert payment_sandbox.session(payment_url)["payment_status"] == "unpaid"


@pytest.mark.tier("browser")
@pytest.mark.parametrize(
    ("button", "status"),
    [("Start a debit that succeeds", "paid"), ("Start a debit that fails", "unpaid")],
    ids=["comes", "falls_through"],
)
def test_sandbox_bank_debit_is_ordered_immediately_and_settled_or_failed_later(
    open_page: OpenPage,
    payment_sandbox: SandboxPayments,
    payment_url: str,
    button: str,
    status: str,
) -> None:
    page = open_page(payment_url)
    page.get_by_role("button", name=button).click()
    page.wait_for_url("**/?back=1")
    page.goto(payment_url)
    expect(page.get_by_text("A bank debit is in progress.")).to_be_visible()
    outcome_text = "The payment succeeded." if status == "paid" else "The bank debit failed."
    # The test settles or fails the bank debit immediately, because the sandbox would do so only
    # after some seconds.
    (payment_sandbox.settle if status == "paid" else payment_sandbox.fall_through)(payment_url)
    page.reload()
    expect(page.get_by_text(outcome_text)).to_be_visible()
    assert payment_sandbox.session(payment_url)["payment_status"] == status


@pytest.mark.tier("browser")
def test_sandbox_operator_can_pay_refund_and_dispute_an_order(
    open_page: OpenPage, payment_sandbox: SandboxPayments, payment_url: str, sandbox_url: str
) -> None:
    page = open_page(f"{sandbox_url}/")
    page.get_by_role("link", name="Payments").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Payments")
    order_id = payment_sandbox.session(payment_url)["order_id"]
    order_item = page.get_by_role("listitem", name=f"Order {order_id}", exact=True)
    order_item.get_by_role("button", name="Pay", exact=True).click()
    order_item.get_by_label("Amount").fill("34.56")
    order_item.get_by_role("button", name="Refund", exact=True).click()
    expect(order_item).to_contain_text("34.56 USD refunded")
    order_item.get_by_role("button", name="Open a dispute").click()
    order_item.get_by_role("button", name="Lose the dispute").click()
    expect(order_item).to_contain_text("dispute lost")
    order_item.get_by_text(re.compile("Events")).click()
    expect(order_item.get_by_text("checkout.session.completed")).to_be_visible()
    require_accessible(page)
    order_item.get_by_label("Amount").fill("9999")
    order_item.get_by_role("button", name="Refund", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("can still be refunded")
    assert payment_sandbox.session(payment_url)["refunded"] == 3456


@pytest.mark.tier("browser")
def test_sandbox_operator_can_hold_and_release_payment_events(
    open_page: OpenPage, payment_sandbox: SandboxPayments, payment_url: str, sandbox_url: str
) -> None:
    page = open_page(f"{sandbox_url}/stripe")
    page.get_by_label("Hold events").check()
    page.get_by_label("Deliveries per event").fill("3")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_label("Hold events")).to_be_checked()
    expect(page.get_by_label("Deliveries per event")).to_have_value("3")
    payment_sandbox.pay(payment_url)
    assert [each["is_held"] for each in payment_sandbox.events(payment_url)] == [True]
    page.reload()
    page.get_by_role("button", name="Release events").click()
    expect(page.get_by_role("button", name="Release events")).to_have_count(0)
    assert [each["is_held"] for each in payment_sandbox.events(payment_url)] == [False]
    payment_sandbox.mode()
