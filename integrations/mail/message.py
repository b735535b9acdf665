"""A mail as the bytes that SMTP carries (RFC 5322, RFC 2045)."""

import re
from email.header import Header
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import format_datetime, formataddr, make_msgid

from core import clock
from core.refusals.mail import MAIL_UNWRITABLE
from core.settings.mail_server import MailSender
from integrations.mail.port import Mail

_KEY = re.compile(r"[A-Za-z0-9-]{1,64}\Z")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*\Z")
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_OURS = {"from", "sender", "to", "cc", "bcc", "subject", "date", "message-id", "mime-version"}
_MAX_LINE_BYTES = 998  # RFC 5322, 2.1.1


class _AsWritten(EmailPolicy):
    """Keeps each header as it was given.

    The library would take apart what looks like encoded words, line ends inside them included,
    and make encoded words of long links, which no mail program then takes for links.
    """

    def header_store_parse(self, name: str, value: str) -> tuple[str, str]:
        return name, value

    def fold_binary(self, name: str, value: str) -> bytes:
        return f"{name}: {value}\r\n".encode()


_POLICY = _AsWritten(linesep="\r\n")


def compose(mail: Mail, sender: MailSender, address: str) -> bytes:
    """The whole message to one address; raises ``mail.refused`` if it can't be written."""
    message = EmailMessage(_POLICY)
    message["From"] = formataddr((_shown_name(mail, sender), sender.address))
    message["To"] = address
    message["Subject"] = _written("Subject", _CONTROLS.sub(" ", mail.subject))
    message["Date"] = format_datetime(clock.now())
    if mail.key is not None and not _KEY.match(mail.key):
        raise MAIL_UNWRITABLE(what="The key")
    made_up = make_msgid(domain=sender.domain)
    message["Message-ID"] = f"<{mail.key}@{sender.domain}>" if mail.key else made_up
    for name, value in mail.headers.items():
        is_ours = name.lower() in _OURS or name.lower().startswith("content-")
        if is_ours or not _NAME.match(name) or _CONTROLS.search(value):
            raise MAIL_UNWRITABLE(what="A header")
        message[name] = _written(name, value)
    try:
        message.set_content(mail.text, cte="quoted-printable")
        message.add_alternative(mail.html, subtype="html", cte="quoted-printable")
    except UnicodeError:
        raise MAIL_UNWRITABLE(what="The text") from None
    return message.as_bytes()


def _shown_name(mail: Mail, sender: MailSender) -> str:
    """A name of a list's owner says whose installation sends it: no owner poses as another."""
    if mail.sender_name is None:
        return sender.name
    return f"{mail.sender_name} via {sender.name or sender.domain}"


def _written(name: str, value: str) -> str:
    """The value in ASCII; other text, or text that looks encoded, becomes encoded words."""
    if value.isascii() and "=?" not in value:
        if len(name) + len(": ") + len(value) > _MAX_LINE_BYTES:
            raise MAIL_UNWRITABLE(what="A header")
        return value
    try:
        return Header(value, "utf-8", header_name=name).encode(linesep="\r\n")
    except UnicodeError:
        raise MAIL_UNWRITABLE(what="A header") from None
