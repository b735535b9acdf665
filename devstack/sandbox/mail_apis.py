"""Composes and stores the mails that are sent through the simulated HTTP APIs."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, make_msgid, parseaddr

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import ValidationError

from devstack.sandbox.mail_faults import REJECTED, SLOW, SLOW_SECONDS, DeferredMails, has_fault
from devstack.sandbox.mailbox import MAX_MAIL_BYTES, Mailbox

_ADDRESS = re.compile(r"[^\s@<>,]+@[^\s@<>,]+")
_HEADER_NAME = re.compile(r"[!-9;-~]+")
# Don't fold header lines, because mail programs don't recognise a folded link. RFC 5322 limits a
# line to 998 characters.
_POLICY = SMTP.clone(max_line_length=998)
_DOMAIN = "sandbox.localhost"


class RequestRefused(Exception):
    def __init__(
        self, status: int, content: dict[str, object], headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(content)
        self.response = JSONResponse(content, status, headers)


class MailApiRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[object, object, Response]]:
        handle = super().get_route_handler()

        async def handle_or_refuse(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestRefused as refusal:
                return refusal.response

        return handle_or_refuse


@dataclass(frozen=True)
class OutgoingMail:
    sender: str
    recipients: Sequence[str]
    subject: str
    text: str | None = None
    html: str | None = None
    headers: Sequence[tuple[str, str]] = field(default_factory=list)


class Outbox:
    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._deferred = DeferredMails()

    async def send(self, mail: OutgoingMail) -> int:
        """Return the number of the failed attempt if the mail is deferred, or 0 if the API must
        accept it.

        The sandbox accepts and discards a mail to a rejected recipient, because real providers
        report a bounce only later. Raises ``ValueError`` for a mail that can't be composed.
        """
        content = compose_mail(mail)
        addresses = tuple(parseaddr(each)[1] for each in mail.recipients)
        if any(has_fault(each, SLOW) for each in addresses):
            await asyncio.sleep(SLOW_SECONDS)
        if failed_attempt := self._deferred.defer(addresses, mail.subject):
            return failed_attempt
        accepted = tuple(each for each in addresses if not has_fault(each, REJECTED))
        if accepted:
            self._mailbox.store(accepted, content)
        return 0


def compose_mail(mail: OutgoingMail) -> bytes:
    """Raise ``ValueError`` for an invalid address or header."""
    message = EmailMessage(_POLICY)
    for address in (mail.sender, *mail.recipients):
        require_address(address)
    message["From"] = mail.sender
    message["To"] = ", ".join(mail.recipients)
    message["Subject"] = mail.subject
    message["Date"] = format_datetime(datetime.now(UTC))
    message["Message-ID"] = make_msgid(domain=_DOMAIN)
    if mail.text is not None:
        message.set_content(mail.text)
    if mail.html is not None and mail.text is not None:
        message.add_alternative(mail.html, subtype="html")
    elif mail.html is not None:
        message.set_content(mail.html, subtype="html")
    for name, value in mail.headers:
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a header.")
        message[name] = value
    return message.as_bytes()


def require_address(text: str) -> None:
    """Raise ``ValueError`` if the text is neither an e-mail address nor ``Name <address>``."""
    if not _ADDRESS.fullmatch(parseaddr(text)[1]):
        raise ValueError(f"{text!r} is not an e-mail address.")


async def read_body(request: Request) -> bytes | None:
    """Return ``None`` if the body is larger than the largest mail."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_MAIL_BYTES:
            return None
    return bytes(body)


def describe_error(error: ValidationError) -> tuple[str, str, str]:
    """Return the first invalid field, the type of the error and the error's message."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return str(next(iter(first["loc"]), "")), first["type"], first["msg"]
