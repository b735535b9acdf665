"""Sends mail over SMTP (RFC 5321), with a separate connection for each mail.

Errors and log entries omit the mail server's replies, because the replies contain e-mail addresses.
"""

import re
import smtplib
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from email.header import Header
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import format_datetime, formataddr, make_msgid
from functools import cached_property
from socket import socket

from email_validator import EmailNotValidError, validate_email

from core import clock
from core.calls.breaker import Breaker
from core.calls.time_limits import create_tls_context, limit_socket, time_limit
from core.counters.work_metrics import MAILS, MailOutcome
from core.errors import DomainError, ServerFailed, TransientError
from core.errors import mailing as errors
from core.errors.mailing import MAIL_UNWRITABLE
from core.settings.mail_server import MailSecurity, MailSender, MailServer
from core.telemetry import spans
from core.telemetry.attributes import SpanAttributes
from integrations.mail.port import Mail

_KEY = re.compile(r"[A-Za-z0-9-]{1,64}\Z")
_HEADER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*\Z")
_CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# Headers that prevent automatic replies, such as out-of-office messages. `Auto-Submitted` is
# defined by RFC 3834, section 5. `X-Auto-Response-Suppress` is for Microsoft Exchange. The value
# `All` of `X-Auto-Response-Suppress` would suppress even bounces.
_AUTOMATIC_MAIL_HEADERS = {
    "Auto-Submitted": "auto-generated",
    "X-Auto-Response-Suppress": "OOF, AutoReply",
}
_RESERVED_HEADERS = {
    "from",
    "sender",
    "to",
    "cc",
    "bcc",
    "subject",
    "date",
    "message-id",
    "mime-version",
    *(name.lower() for name in _AUTOMATIC_MAIL_HEADERS),
}
_MAX_LINE_BYTES = 998  # RFC 5322, section 2.1.1, limits each line of an e-mail to 998 bytes.

# The time limit of an SMTP session, even if the network drops all packets or the server replies
# byte by byte.
_MAX_CALL_SECONDS = 20.0

_SERVER = "mail server"

_PERMANENT_CODES = range(500, 600)
# The SMTP codes for a rejected or missing login (RFC 4954). If the mail server rejects Pressroom's
# login, mails are retried, because the operator can correct the credentials.
_LOGIN_CODES = frozenset({530, 534, 535, 538})
_TOO_LARGE_CODE = 552
# The SMTP codes for an outage of the mail server. Code 421 means a shutdown, and ``None`` and -1
# mean that the server sent no reply.
_OUTAGE_CODES = frozenset({None, -1, 421})


class _UnchangedHeaderPolicy(EmailPolicy):
    """An e-mail policy that writes each header unchanged.

    Python's default policy would decode text that looks like encoded words, so a header could
    contain line breaks. Python's default policy would encode long links in headers, and mail
    programs don't recognise encoded links.
    """

    def header_store_parse(self, name: str, value: str) -> tuple[str, str]:
        return name, value

    def fold_binary(self, name: str, value: str) -> bytes:
        return f"{name}: {value}\r\n".encode()


def compose_message(mail: Mail, sender: MailSender, address: str) -> bytes:
    """Raise ``mail.refused`` if no valid message can be built."""
    message = EmailMessage(_UnchangedHeaderPolicy(linesep="\r\n"))
    message["From"] = formataddr((sender.build_name(mail.sender_name), sender.address))
    message["To"] = address
    message["Subject"] = _encode_header("Subject", _CONTROL_CHARACTERS.sub(" ", mail.subject))
    message["Date"] = format_datetime(clock.now())
    if mail.key is not None and not _KEY.match(mail.key):
        raise MAIL_UNWRITABLE(what="The key")
    random_id = make_msgid(domain=sender.domain)
    message["Message-ID"] = f"<{mail.key}@{sender.domain}>" if mail.key else random_id
    for name, value in _AUTOMATIC_MAIL_HEADERS.items():
        message[name] = value
    for name, value in mail.headers.items():
        is_reserved = name.lower() in _RESERVED_HEADERS or name.lower().startswith("content-")
        if is_reserved or not _HEADER_NAME.match(name) or _CONTROL_CHARACTERS.search(value):
            raise MAIL_UNWRITABLE(what="A header")
        message[name] = _encode_header(name, value)
    try:
        message.set_content(mail.text, cte="quoted-printable")
        message.add_alternative(mail.html, subtype="html", cte="quoted-printable")
    except UnicodeError:
        raise MAIL_UNWRITABLE(what="The text") from None
    return message.as_bytes()


def _encode_header(name: str, value: str) -> str:
    """Convert a value to encoded words (RFC 2047) if it isn't ASCII or already looks like encoded
    words.
    """
    if value.isascii() and "=?" not in value:
        if len(name) + len(": ") + len(value) > _MAX_LINE_BYTES:
            raise MAIL_UNWRITABLE(what="A header")
        return value
    try:
        return Header(value, "utf-8", header_name=name).encode(linesep="\r\n")
    except UnicodeError:
        raise MAIL_UNWRITABLE(what="A header") from None


@dataclass(frozen=True)
class SmtpMailer:
    """TLS connections verify the server's certificate."""

    server: MailServer
    sender: MailSender
    timeout: float = _MAX_CALL_SECONDS
    breaker: Breaker = field(default_factory=lambda: Breaker(_SERVER))

    def send(self, mail: Mail) -> None:
        try:
            self._send(mail)
        except (DomainError, TransientError) as error:
            is_refused = isinstance(error, DomainError)
            MAILS.labels(MailOutcome.REFUSED if is_refused else MailOutcome.DEFERRED).inc()
            raise
        MAILS.labels(MailOutcome.SENT).inc()

    def _send(self, mail: Mail) -> None:
        try:
            recipient = validate_email(mail.to, check_deliverability=False)
        except EmailNotValidError:
            raise errors.MAIL_RECIPIENT_INVALID() from None
        address = f"{recipient.ascii_local_part or recipient.local_part}@{recipient.ascii_domain}"
        message = compose_message(mail, self.sender, address)
        options = [] if address.isascii() else ["SMTPUTF8", "BODY=8BITMIME"]
        attributes: SpanAttributes = {"server.address": self.server.host}
        with (
            spans.step_span("mail", "client", attributes),
            self.breaker.protect(),
            time_limit(self.timeout),
            self._logged_in() as connection,
        ):
            if options and not connection.has_extn("smtputf8"):
                raise errors.MAIL_RECIPIENT_NOT_ASCII()
            connection.sendmail(self.sender.address, [address], message, options)
            # The server has already accepted the mail, so a failed QUIT command doesn't matter.
            with suppress(smtplib.SMTPException):
                connection.quit()

    def log_in(self) -> None:
        """Log in to the mail server to test the settings."""
        with self.breaker.protect(), time_limit(self.timeout), self._logged_in() as connection:
            connection.quit()

    @contextmanager
    def _logged_in(self) -> Iterator[smtplib.SMTP]:
        """Convert SMTP errors in the ``with`` block to Pressroom's errors."""
        try:
            with closing(self._connect()) as connection:
                if self.server.security is MailSecurity.STARTTLS:
                    connection.starttls(context=self._tls)
                if self.server.login is not None:
                    connection.login(self.server.login.user, self.server.login.password)
                connection.ehlo_or_helo_if_needed()
                yield connection
        except smtplib.SMTPException as error:
            raise _translate_error(error) from None
        # smtplib raises ValueError if the server sends an invalid login challenge.
        except (OSError, ValueError) as error:
            raise ServerFailed(_SERVER, type(error).__name__) from None

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return create_tls_context()

    def _connect(self) -> smtplib.SMTP:
        # Greet the mail server with the sender's domain, because looking up the host name of this
        # machine may take too long.
        name = self.sender.domain
        host = self.server.host
        port = self.server.port
        timeout = self.timeout
        if self.server.security is MailSecurity.TLS:
            return smtplib.SMTP_SSL(host, port, name, timeout=timeout, context=self._tls)
        return _Smtp(host, port, name, timeout=timeout)


class _Smtp(smtplib.SMTP):
    def _get_socket(self, host: str, port: int, timeout: float) -> socket:
        return limit_socket(super()._get_socket(host, port, timeout))  # type: ignore[misc]


def _translate_error(error: smtplib.SMTPException) -> Exception:
    """Return ``mail.refused`` for a permanent SMTP error, or else ``TransientError``."""
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return TransientError("The mail server doesn't support STARTTLS or logins.")
    code = None
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        [(code, _)] = error.recipients.values()
    elif isinstance(error, smtplib.SMTPResponseException):
        code = error.smtp_code
    summary = f"{type(error).__name__} {code or ''}".rstrip()
    if code in _OUTAGE_CODES:
        return ServerFailed(_SERVER, summary)
    if code in _PERMANENT_CODES and code not in _LOGIN_CODES:
        match error:
            case smtplib.SMTPRecipientsRefused():
                return errors.MAIL_RECIPIENT_REFUSED(status=code)
            case smtplib.SMTPDataError():
                return errors.MAIL_MESSAGE_REFUSED(status=code)
            case smtplib.SMTPSenderRefused() if code == _TOO_LARGE_CODE:
                return errors.MAIL_TOO_LARGE(status=code)
    # Treat all other rejections as temporary, because an operator can remove causes such as a wrong
    # SMTP password.
    return TransientError(f"The mail server rejected the mail ({summary}).")
