"""Tests the mailbox page of the sandbox."""

import pytest
from playwright.sync_api import expect

from core.settings.mail_server import MailSender, MailServer
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from integrations.mail.port import Mail
from integrations.mail.smtp import SmtpMailer
from tests.support.browser.accessibility import OpenPage

READER_ADDRESS = "avid.reader@example.com"


def send(stack: Stack, mail: Mail) -> None:
    server = MailServer.parse(stack.environment["PRESSROOM_MAIL_URL"])
    SmtpMailer(server, MailSender.parse("The Daily Demo <news@pressroom.example>")).send(mail)


def build_confirmation_mail(stack: Stack) -> Mail:
    link = f"{stack.sandbox_url}/?from=mail"
    return Mail(
        to=READER_ADDRESS,
        subject="Please confirm: Grüße aus der Redaktion",
        text=f"Please confirm that you want The Daily Demo:\n{link}\n",
        html="<!doctype html><html><head><title>Confirm</title></head><body>"
        "<script>document.body.append('scripted')</script><h1>The Daily Demo</h1>"
        f'<p>One click, and it is yours: <a href="{link}">Confirm</a></p></body></html>',
        headers={"List-Unsubscribe": f"<{stack.sandbox_url}/?unsubscribe=1>"},
    )


@pytest.mark.tier("browser")
def test_sandbox_mailbox_page_finds_a_mail_and_opens_its_link(
    stack: Stack, open_page: OpenPage
) -> None:
    send(stack, Mail("somebody.else@example.com", "Not for the reader", "Text", "<p>Html", {}))
    send(stack, build_confirmation_mail(stack))
    eventually(lambda: stack.mails(to=READER_ADDRESS), what="the mail")
    page = open_page(f"{stack.sandbox_url}/")
    page.get_by_role("link", name="Mail").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Mailbox")
    expect(page.get_by_role("link", name="Not for the reader").first).to_be_visible()
    page.get_by_label("Only mail to").fill(READER_ADDRESS)
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("link", name="Not for the reader")).to_have_count(0)
    page.get_by_role("link", name="Please confirm").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Grüße aus der Redaktion")
    frame = page.frame_locator("iframe")
    expect(frame.get_by_role("heading", name="The Daily Demo")).to_be_visible()
    expect(frame.get_by_text("scripted")).to_have_count(0)
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    with page.expect_popup() as popup:
        frame.get_by_role("link", name="Confirm").click()
    popup.value.wait_for_url("**/?from=mail")
    expect(popup.value.get_by_role("heading", level=1)).to_have_text("Pressroom sandbox")
