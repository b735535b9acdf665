"""Credits, keys and webhooks in a real browser: paid for, made and used, sent and sent again."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from core.scopes import EXPLANATIONS, Scope
from tests.browser.consoles import console_in, fits
from tests.browser.test_unsubscribe import NARROW, require_accessible
from tests.contract.credits import balance
from tests.contract.replies import data
from tests.hooks import HookReceiver, hooked
from tests.stack import Owner, Stack, eventually

Keep = Callable[[Page, str], Path]
both = pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])


@both
def test_credits_are_bought_paid_and_have_a_receipt_to_print(
    stack: Stack, browser: Browser, keep: Keep, owner: Owner, *, scripts: bool
) -> None:
    kind = "js" if scripts else "plain"
    with console_in(browser, stack, owner, scripts=scripts) as page, stack.client(owner.key) as api:
        page.goto(f"{stack.api_url}/console")
        page.get_by_role("link", name="Credits").click()
        page.get_by_role("link", name="Buy your first credits").click()
        page.get_by_label("How many credits").fill("a lot")
        page.get_by_role("button", name="Go on to the price").click()
        expect(page.get_by_label("How many credits")).to_have_attribute("aria-invalid", "true")
        expect(page.get_by_label("How many credits")).to_have_value("a lot")
        _is_usable(page, scripts=scripts)
        page.get_by_label("How many credits").fill("1,250")
        page.get_by_role("button", name="Go on to the price").click()
        expect(page.get_by_role("status")).to_contain_text("Waits for your payment.")
        _is_usable(page, scripts=scripts)
        keep(page, f"console-order-{kind}")

        page.get_by_role("link", name="Pay 12.50 USD").click()
        page.get_by_role("button", name="Pay", exact=False).first.click()
        expect(page.get_by_role("status")).to_have_text("Paid. The credits are in your balance.")
        assert balance(api) == 1250

        page.get_by_role("link", name="Receipt").click()
        [order] = data(api.get("/auxilia/credits/orders"))["items"]
        expect(page.get_by_role("cell", name="12.50 USD")).to_have_count(2)
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Receipt {order['order_id']}")
        page.set_viewport_size({"width": NARROW, "height": 640})
        _is_usable(page, scripts=scripts)
        assert fits(page, NARROW)
        page.emulate_media(media="print")
        for shown_on_paper, part in (
            (False, page.get_by_role("navigation", name="Console", include_hidden=True)),
            (False, page.get_by_role("navigation", name="Where you are", include_hidden=True)),
            (False, page.get_by_text("Do it by the API")),
            (True, page.get_by_role("article")),
        ):
            expect(part).to_be_visible(visible=shown_on_paper)
        keep(page, f"console-receipt-print-{kind}")


@both
def test_a_key_is_made_used_and_ended(
    stack: Stack, browser: Browser, keep: Keep, owner: Owner, *, scripts: bool
) -> None:
    with console_in(browser, stack, owner, scripts=scripts) as page:
        page.goto(f"{stack.api_url}/console")
        page.get_by_role("link", name="Programs").click()
        page.get_by_role("link", name="Make a key").click()
        page.get_by_label("Name", exact=True).fill("Upload script")
        page.get_by_role("button", name="Make the key").click()
        expect(page.get_by_text("Tick what the key may do.")).to_be_visible()
        expect(page.get_by_label("Name", exact=True)).to_have_value("Upload script")
        page.get_by_label(EXPLANATIONS[Scope.ATTACHMENT]).check()
        page.get_by_role("button", name="Make the key").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Your new API key")
        _is_usable(page, scripts=scripts)
        keep(page, f"console-key-made-{'js' if scripts else 'plain'}")
        key = page.get_by_label("Upload script").first.input_value()
        with stack.client(key) as program:
            data(program.get("/attachments"))
            page.get_by_role("link", name="I have copied it").click()
            mine = page.get_by_role("region", name=f"Upload script (…{key[-4:]})")
            mine.get_by_role("link", name="End this key").click()
            _is_usable(page, scripts=scripts)
            page.get_by_role("button", name="End it").click()
            expect(page.get_by_role("status")).to_contain_text("is ended.")
            assert program.get("/attachments").status_code == 401


@both
def test_a_webhook_is_made_tested_and_sent_again(
    stack: Stack, browser: Browser, keep: Keep, owner: Owner, *, scripts: bool
) -> None:
    kind = "js" if scripts else "plain"
    with hooked() as receiver, console_in(browser, stack, owner, scripts=scripts) as page:
        page.goto(f"{stack.api_url}/console/programs")
        page.get_by_role("link", name="Make a webhook").click()
        page.get_by_label("URL", exact=True).fill(receiver.url)
        page.get_by_label("A person left").check()
        keep(page, f"console-webhook-new-{kind}")
        page.get_by_role("button", name="Make the webhook").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Your new webhook")
        _is_usable(page, scripts=scripts)
        secret = page.get_by_label("Secret for").first.input_value()
        page.get_by_role("link", name="I have copied it").click()
        page.get_by_role("button", name="Send a test event").click()
        _until_delivered(page, scripts=scripts)
        keep(page, f"console-webhook-{kind}")
        _is_usable(page, scripts=scripts)
        page.get_by_role("button", name="Send again").click()
        eventually(lambda: len(receiver.hooks) >= 2, what="the second request")
        _require_the_same(receiver, secret)
        _until_delivered(page, scripts=scripts)
        expect(page.get_by_role("cell", name="2", exact=True)).to_be_visible()


def _is_usable(page: Page, *, scripts: bool) -> None:
    """The one that looks is a script itself; without scripts the pages are the same."""
    if scripts:
        require_accessible(page)


def _require_the_same(receiver: HookReceiver, secret: str) -> None:
    assert len({hook.id for hook in receiver.hooks}) == 1
    for hook in receiver.hooks:
        hook.check(secret)


def _until_delivered(page: Page, *, scripts: bool) -> None:
    """With scripts the page looks by itself; without them its link does."""
    if not scripts:
        again = page.get_by_role("link", name="Look again")
        for _ in range(200):
            if again.count() == 0:
                break
            again.click()
    expect(page.get_by_role("cell", name="delivered")).to_be_visible()
