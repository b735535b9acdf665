"""Browser tests of the pages that open when a reader clicks a link in a mail."""

import httpx2
import pytest
from playwright.sync_api import Page, expect

from devstack.harness.stack import Stack
from tests.support.browser import accessibility
from tests.support.browser.accessibility import fits_width
from tests.support.browser.readers import TITLE, mailed_link
from tests.support.http.replies import data
from tests.support.lists.people_on_lists import Subscriber, new_list, subscribe, subscribe_pending


@pytest.fixture
def subscriber(stack: Stack, client: httpx2.Client) -> Subscriber:
    """A person who is subscribed to a new list."""
    return subscribe(stack, new_list(client, TITLE))


@pytest.fixture
def pending_subscriber(stack: Stack, client: httpx2.Client) -> Subscriber:
    """A person who has not yet confirmed the subscription to a new list."""
    return subscribe_pending(stack, new_list(client, TITLE, confirm_required=True))


def expect_heading(page: Page, heading: str) -> None:
    accessibility.require_page(page, heading)
    expect(page).to_have_title(f"{heading} – {TITLE}")


@pytest.mark.tier("fast", "browser")
def test_reader_can_unsubscribe_with_reason_resubscribe_and_report_the_list(
    page: Page, client: httpx2.Client, subscriber: Subscriber
) -> None:
    page.goto(subscriber.unsubscribe_url)
    expect_heading(page, "You are subscribed")
    page.get_by_text("Why are you leaving?").click()
    page.get_by_label("I get too many e-mails.").check()
    page.get_by_role("button", name="Unsubscribe").click()
    expect_heading(page, "You have unsubscribed")
    assert subscriber.read_status() == ("unsubscribed", True)
    history_path = f"/lists/{subscriber.list_id}/members/{subscriber.user_id}/history"
    assert data(client.get(history_path))["items"][0]["reason"] == "too_many"
    rows_before = subscriber.list_rows()
    # When the reader reloads the page, the browser must not send the form again or show a warning.
    page.reload()
    expect_heading(page, "You have unsubscribed")
    assert subscriber.list_rows() == rows_before
    page.get_by_role("button", name="Subscribe me again").click()
    expect_heading(page, "You are subscribed")
    assert subscriber.read_status() == ("active", True)
    page.get_by_role("link", name="Report this list").click()
    expect_heading(page, "Report this list")
    # Press the button by keyboard.
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect_heading(page, "Thank you for your report")
    assert subscriber.read_status()[0] == "unsubscribed"


@pytest.mark.tier("fast", "browser")
def test_reader_can_confirm_subscription_and_open_pages_from_mails(
    page: Page, pending_subscriber: Subscriber
) -> None:
    page.goto(pending_subscriber.unsubscribe_url)
    expect_heading(page, "Not confirmed yet")
    page.goto(mailed_link(pending_subscriber, "/confirm"))
    expect_heading(page, "Confirm your subscription")
    page.get_by_role("button", name="Confirm my subscription").click()
    expect_heading(page, "You’re subscribed")
    assert pending_subscriber.read_status() == ("active", True)
    page.goto(mailed_link(pending_subscriber, "/unsubscribe"))
    expect_heading(page, "You are subscribed")


@pytest.mark.tier("browser")
def test_unsubscribe_page_fits_with_doubled_text_size(page: Page, subscriber: Subscriber) -> None:
    page.set_viewport_size({"width": 640, "height": 800})
    page.goto(subscriber.unsubscribe_url)
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    assert fits_width(page, 640)
