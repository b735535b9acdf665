from email.message import EmailMessage

import httpx2
import pytest
from fastapi import FastAPI, HTTPException

from devstack.sandbox import mailbox as mailbox_module
from devstack.sandbox.mailbox import MAX_MAILS, Mailbox, build_router
from tests.support.sandbox.in_process import call_app


def build_mail(subject: str = "Hello", text: str = "Text", html: str | None = "<p>Html") -> bytes:
    message = EmailMessage()
    message["From"] = "Pressroom <news@pressroom.example>"
    message["To"] = "reader@example.com"
    message["Subject"] = subject
    message["List-Unsubscribe"] = "<https://pressroom.example/unsubscribe>"
    message.set_content(text)
    if html is not None:
        message.add_alternative(html, subtype="html")
    return message.as_bytes()


def fetch(mailbox: Mailbox, path: str = "", **query: str) -> httpx2.Response:
    app = FastAPI()
    app.include_router(build_router(mailbox), prefix="/mail")
    return call_app(app, "GET", f"/mail{path}", params=query)


@pytest.fixture
def mailbox() -> Mailbox:
    box = Mailbox()
    for name in ("first", "second", "third"):
        to = "other@example.com" if name == "second" else "Reader@example.com"
        box.store((to,), build_mail(f"The {name} one"))
    return box


def subjects(reply: httpx2.Response) -> list[str]:
    return [each["subject"] for each in reply.json()]


def test_sandbox_mailbox_lists_mails_newest_first_and_filters_by_address(mailbox: Mailbox) -> None:
    all_mails = fetch(mailbox, "/messages")
    assert subjects(all_mails) == ["The third one", "The second one", "The first one"]
    readers_mails = fetch(mailbox, "/messages", to="reader@EXAMPLE.com")
    assert subjects(readers_mails) == ["The third one", "The first one"]
    assert fetch(mailbox, "/messages", to="eader@example.com").json() == []
    page = fetch(mailbox, to="other@example.com").text
    assert "The second one" in page
    assert "The first one" not in page


@pytest.mark.slow
def test_sandbox_mailbox_limits_number_and_size_of_mails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mailbox = Mailbox()
    for number in range(MAX_MAILS + 2):
        mailbox.store(("a@example.com",), build_mail(str(number), html=None))
    mails = mailbox.list_newest_first()
    assert len(mails) == MAX_MAILS
    assert mails[-1].subject == "2"
    with pytest.raises(HTTPException, match="Mail not found"):
        mailbox.find(1)
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOX_BYTES", 100_000)
    for _ in range(3):
        mailbox.store(("a@example.com",), build_mail(text="x" * 40_000, html=None))
    assert sum(len(each.raw) for each in mailbox) <= 100_000
    assert mailbox.list_newest_first()[0].subject == "Hello"


def test_sandbox_mailbox_page_shows_headers_and_text_and_isolates_html() -> None:
    mailbox = Mailbox()
    mailbox.store(
        ("reader@example.com",), build_mail("<i>Tricky</i>", "See https://a.example/?b=1&c")
    )
    page = fetch(mailbox, "/messages/1").text
    assert "<h1>&lt;i&gt;Tricky&lt;/i&gt;</h1>" in page
    assert '<a href="https://a.example/?b=1&amp;c" rel="noopener" target="_blank">' in page
    assert '<a href="https://pressroom.example/unsubscribe"' in page
    assert 'sandbox="allow-popups allow-popups-to-escape-sandbox"' in page
    assert "<script" not in page
    assert "Html" not in page
    source = fetch(mailbox, "/messages/1/raw")
    assert source.headers["content-type"].startswith("text/plain")
    assert source.content == mailbox.list_newest_first()[0].raw


@pytest.mark.parametrize(
    ("html", "displayed"),
    [
        ("<p>Hi", '<base target="_blank"><p>Hi\n'),
        ("<!doctype html><p>Hi", '<!doctype html><base target="_blank"><p>Hi\n'),
        (
            '<!DOCTYPE html><html lang="en"><head ></head><header>',
            '<!DOCTYPE html><html lang="en"><head ><base target="_blank"></head><header>\n',
        ),
    ],
)
def test_sandbox_mailbox_html_can_only_open_links_in_a_new_tab(html: str, displayed: str) -> None:
    mailbox = Mailbox()
    mailbox.store(("reader@example.com",), build_mail(html=html))
    part = fetch(mailbox, "/messages/1/html")
    assert part.text == displayed
    # The browser loads nothing from other servers, so no sender learns that the mail was read.
    assert part.headers["content-security-policy"].split("; ") == [
        "sandbox allow-popups allow-popups-to-escape-sandbox",
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "img-src data: http://127.0.0.1:* http://localhost:*",
    ]
    assert part.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["", "/messages", "/messages/1", "/messages/1/raw"])
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"no header at all",
        b"Subject: \xff\xfe\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n\xff\xfe",
        b"Content-Type: multipart/alternative\r\n\r\nno boundary",
        b"Content-Type: text/plain; charset=unheard-of\r\n\r\ntext",
        b"From: @@@ <\r\nTo: ,,,\r\nDate: never\r\nSubject: =?x?q?y?=\r\n\r\ntext",
    ],
)
def test_sandbox_mailbox_shows_readable_parts_of_malformed_mail(raw: bytes, path: str) -> None:
    mailbox = Mailbox()
    mailbox.store(("reader@example.com",), raw)
    assert fetch(mailbox, path).status_code == 200
