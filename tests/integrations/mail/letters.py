"""Mails and mailers of the tests."""

import itertools
from collections.abc import Mapping

from core.settings.mail_server import MailSender, MailServer
from integrations.mail.port import Mail
from integrations.mail.smtp import SmtpMailer

SENDER = MailSender.parse("Press & Röom <news@pressroom.example>")
_numbers = itertools.count()


def address(local_part: str = "reader") -> str:
    """An address that no other test writes to."""
    return f"{local_part}@reader{next(_numbers)}.example.com"


def letter(
    to: str | None = None,
    *,
    subject: str = "Please confirm",
    text: str = "Hello",
    html: str = "<p>Hello",
    headers: Mapping[str, str] | None = None,
) -> Mail:
    return Mail(to or address(), subject, text, html, headers or {})


def mailer(url: str, *, timeout: float = 10.0) -> SmtpMailer:
    return SmtpMailer(MailServer.parse(url), SENDER, timeout)
