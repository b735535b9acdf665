"""Tests pages of the console with which an owner creates a sender and sees the sender's reports."""

import httpx2
import pytest
from playwright.sync_api import Page, expect

from devstack.harness.stack import Owner, Stack
from tests.support.browser.accessibility import NARROW_WIDTH, fits_width, require_accessible
from tests.support.browser.consoles import log_in_browser
from tests.support.http.replies import data
from tests.support.imports.bulk import add
from tests.support.lists.subscribers import new_address, new_list, require_member
from tests.support.senders.posting import body_of, bounce, deliver, delivery_for


@pytest.mark.tier("browser")
def test_owner_creates_a_sender_tries_a_body_and_sees_a_bounce_turn_mail_off(
    page: Page, stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    list_id = int(new_list(client)["id"])
    email = new_address()
    data(add(client, list_id, email))
    user_id = require_member(client, list_id, email)["user_id"]
    log_in_browser(page, stack, owner.user_id)
    page.goto(f"{stack.api_url}/console/developers/senders")
    page.get_by_role("link", name="Create a sender").click()
    page.get_by_role("link", name="Your own program").click()
    page.get_by_role("textbox", name="Name").fill("Our mail server")
    page.get_by_role("button", name="Create sender").click()
    secret = page.get_by_role("textbox", name="Secret of").input_value()
    [record] = data(client.get("/senders"))
    sender_page = f"{stack.api_url}/console/developers/senders/{record['id']}"

    page.goto(sender_page)
    page.get_by_role("link", name="Try a report").click()
    page.get_by_label("Report", exact=True).fill("no JSON")
    page.get_by_role("button", name="Try").click()
    expect(page.get_by_label("Report", exact=True)).to_have_attribute("aria-invalid", "true")
    report = bounce("hard", "5.1.1", delivery_id=delivery_for(stack, list_id, user_id))
    page.get_by_label("Report", exact=True).fill(body_of(report).decode())
    page.get_by_role("button", name="Try").click()
    effect = page.get_by_role("region", name="Effects").get_by_role("row").last
    expect(effect).to_contain_text("Bounced (hard)")
    expect(effect).to_contain_text("Recorded")
    expect(effect).to_contain_text("5.1.1")
    require_accessible(page)
    page.set_viewport_size({"width": NARROW_WIDTH, "height": 800})
    assert fits_width(page)
    assert require_member(client, list_id, email)["email_enabled"] is True

    page.goto(sender_page)
    first_report = page.locator("#first-report")
    expect(first_report).to_contain_text("Waiting for the first report…")
    deliver(stack, client, {**record, "secret": secret}, report)
    expect(first_report).to_contain_text("Reports arrive", timeout=30_000)
    page.goto(sender_page)
    row = page.get_by_role("region", name="Reports of the last 7 days").get_by_role("row").last
    expect(row).to_contain_text("Bounced (hard)")
    row.get_by_role("link", name=email).click()
    expect(page.get_by_text("off after a hard bounce (5.1.1)")).to_be_visible()
