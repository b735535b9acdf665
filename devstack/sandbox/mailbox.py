"""Receives mails by SMTP, and stores them in the sandbox's mailbox in memory."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default as policy
from functools import partial
from itertools import count
from typing import Annotated, Any

from aiosmtpd.smtp import SMTP, Envelope, Session
from fastapi import APIRouter, HTTPException, Query, Response
from fastapi.responses import HTMLResponse, PlainTextResponse

from devstack import LOOPBACK
from devstack.sandbox import render
from devstack.sandbox.mail_faults import REJECTED, SLOW, SLOW_SECONDS, DeferredMails, has_fault

MAX_MAILS = 500
MAX_MAILBOX_BYTES = 32 * 1024 * 1024
MAX_MAIL_BYTES = 5 * 1024 * 1024
# Anyone can send a mail, so the HTML of a mail must not run scripts, submit forms or load external
# resources. Links in a mail may open new windows without the restrictions of the sandboxed frame.
_MAIL_HEADERS = {
    "Content-Security-Policy": (
        "sandbox allow-popups allow-popups-to-escape-sandbox; default-src 'none'; "
        "style-src 'unsafe-inline'; img-src data: http://127.0.0.1:* http://localhost:*"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_NEW_TAB_BASE = '<base target="_blank">'
_HEAD_TAG = re.compile(r"<head(\s[^>]*)?>|<html(\s[^>]*)?>|<!doctype[^>]*>", re.IGNORECASE)


def parse_mail(raw: bytes) -> EmailMessage:
    return message_from_bytes(raw, policy=policy)


@dataclass(frozen=True)
class StoredMail:
    """A received mail. Mails are stored unparsed, because a parsed mail takes much memory."""

    id: int
    received_at: datetime
    recipients: tuple[str, ...]
    subject: str
    raw: bytes

    @property
    def to(self) -> str:
        return ", ".join(self.recipients)

    @property
    def headers(self) -> list[tuple[str, str]]:
        return [(name, str(value)) for name, value in parse_mail(self.raw).items()]

    @property
    def text(self) -> str | None:
        return self._part("plain")

    @property
    def html(self) -> str | None:
        return self._part("html")

    def _part(self, kind: str) -> str | None:
        part = parse_mail(self.raw).get_body((kind,))
        if part is None:
            return None
        try:
            text = str(part.get_content())
        except LookupError:
            # Decode only ASCII characters, because Python doesn't know the mail's character set.
            part.set_param("charset", "ascii")
            text = str(part.get_content())
        return text.replace("\r\n", "\n")


class Mailbox:
    def __init__(self) -> None:
        self._mails: deque[StoredMail] = deque(maxlen=MAX_MAILS)
        self._ids = count(1)

    def store(self, recipients: tuple[str, ...], raw: bytes) -> None:
        subject = str(parse_mail(raw)["Subject"] or "")
        mail = StoredMail(next(self._ids), datetime.now(UTC), recipients, subject, raw)
        self._mails.append(mail)
        while sum(len(each.raw) for each in self) > MAX_MAILBOX_BYTES:
            self._mails.popleft()

    def __iter__(self) -> Iterator[StoredMail]:
        return iter(self._mails)

    def list_newest_first(self, to: str = "") -> list[StoredMail]:
        """Return the mails to an e-mail address, or all mails if ``to`` is empty.

        E-mail addresses are compared case-insensitively.
        """
        address = to.strip().lower()
        newest_first = reversed(self._mails)
        if not address:
            return list(newest_first)
        return [each for each in newest_first if address in map(str.lower, each.recipients)]

    def find(self, mail_id: int) -> StoredMail:
        mail = next((each for each in self._mails if each.id == mail_id), None)
        if mail is None:
            raise HTTPException(404, "Mail not found.")
        return mail

    def remove(self, to: str = "") -> int:
        """Remove the mails to an e-mail address, or all mails if ``to`` is empty.

        Return the number of removed mails.
        """
        removed_mails = self.list_newest_first(to)
        for mail in removed_mails:
            self._mails.remove(mail)
        return len(removed_mails)


class SmtpHandler:
    """Contains methods that the library aiosmtpd calls by their names."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._deferred = DeferredMails()

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if has_fault(address, REJECTED):
            return "550 5.1.1 There is no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        content = envelope.content
        # aiosmtpd passes the content as text only if ``decode_data`` is set.
        assert isinstance(content, bytes)
        if any(has_fault(each, SLOW) for each in envelope.rcpt_tos):
            await asyncio.sleep(SLOW_SECONDS)
        if self._deferred.defer(envelope.rcpt_tos, str(parse_mail(content)["Subject"])):
            return "451 4.7.1 Try again later"
        self._mailbox.store(tuple(envelope.rcpt_tos), content)
        return "250 OK"


@asynccontextmanager
async def run_smtp_server(mailbox: Mailbox, port: int) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    protocol = partial(
        SMTP,
        SmtpHandler(mailbox),
        data_size_limit=MAX_MAIL_BYTES,
        enable_SMTPUTF8=True,
        # Pass a host name to the SMTP server, because the server would otherwise look up the
        # machine's name, which can be slow.
        hostname="sandbox.localhost",
        ident="Pressroom sandbox",
        loop=loop,
    )
    server = await loop.create_server(protocol, LOOPBACK, port)
    try:
        yield
    finally:
        # Don't wait until the SMTP server has closed, because a client may keep its connection
        # open.
        server.close()


To = Annotated[str, Query(description="Only mail to this address")]


def build_router(mailbox: Mailbox) -> APIRouter:
    """Return the routes of a mailbox, to be mounted at ``/mail``."""
    router = APIRouter()

    @router.get("", response_class=HTMLResponse)
    async def listing(to: To = "") -> str:
        return render(
            "mailbox.html", mails=mailbox.list_newest_first(to), to=to, max_mails=MAX_MAILS
        )

    @router.get("/messages")
    async def messages(to: To = "") -> list[dict[str, Any]]:
        return [
            {
                "id": mail.id,
                "to": mail.to,
                "from": str(parse_mail(mail.raw)["From"] or ""),
                "subject": mail.subject,
                "text": mail.text,
                "html": mail.html,
                "headers": dict(mail.headers),
                "received_at": mail.received_at.isoformat(),
            }
            for mail in mailbox.list_newest_first(to)
        ]

    @router.delete("/messages")
    async def remove(to: To = "") -> dict[str, int]:
        return {"removed": mailbox.remove(to)}

    @router.get("/messages/{mail_id}", response_class=HTMLResponse)
    async def show_mail(mail_id: int) -> str:
        return render("mail.html", mail=mailbox.find(mail_id))

    @router.get("/messages/{mail_id}/html")
    async def html(mail_id: int) -> Response:
        part = mailbox.find(mail_id).html
        if part is None:
            raise HTTPException(404, "This mail has no HTML part.")
        # Make links in the mail open in new tabs, because links can't open inside the sandboxed
        # frame.
        matches = list(_HEAD_TAG.finditer(part, 0, 1000))
        position = matches[-1].end() if matches else 0
        return HTMLResponse(
            part[:position] + _NEW_TAB_BASE + part[position:], headers=_MAIL_HEADERS
        )

    @router.get("/messages/{mail_id}/raw")
    async def raw(mail_id: int) -> Response:
        source = mailbox.find(mail_id).raw
        return PlainTextResponse(source, headers={"X-Content-Type-Options": "nosniff"})

    return router
