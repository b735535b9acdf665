"""Mail over SMTP (RFC 5321), each on a connection of its own.

No error or log line repeats a server's words: its replies quote addresses.
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
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*\Z")
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# These headers suppress automatic replies, such as out-of-office messages. `Auto-Submitted`
# is defined by RFC 3834, section 5. `X-Auto-Response-Suppress` is for Exchange. The value
# `All` would also suppress bounces.
_AUTOMATIC = {
    "Auto-Submitted": "auto-generated",
    "X-Auto-Response-Suppress": "OOF, AutoReply",
}
_OURS = {"from", "sender", "to", "cc", "bcc", "subject", "date", "message-id", "mime-version"}
_OURS |= {name.lower() for name in _AUTOMATIC}
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
    name = sender.name
    if mail.sender_name is not None:
        # A list's owner can't pose as another: the name says whose installation sends it.
        name = f"{mail.sender_name} via {sender.name or sender.domain}"
    message["From"] = formataddr((name, sender.address))
    message["To"] = address
    message["Subject"] = _written("Subject", _CONTROLS.sub(" ", mail.subject))
    message["Date"] = format_datetime(clock.now())
    if mail.key is not None and not _KEY.match(mail.key):
        raise MAIL_UNWRITABLE(what="The key")
    made_up = make_msgid(domain=sender.domain)
    message["Message-ID"] = f"<{mail.key}@{sender.domain}>" if mail.key else made_up
    for name, value in _AUTOMATIC.items():
        message[name] = value
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


# The limit of a whole conversation: it ends even when the network swallows everything, or when the
# server answers byte by byte.
_MAX_CALL_SECONDS = 20.0

_SERVER = "mail server"

_PERMANENT = range(500, 600)
# RFC 4954: the login was refused or missing. An operator can mend that.
_LOGIN_REFUSED = frozenset({530, 534, 535, 538})
_TOO_LARGE = 552
# No reply at all, or a server that is shutting down: it is about no mail in particular.
_NO_SERVICE = frozenset({None, -1, 421})


@dataclass(frozen=True)
class SmtpMailer:
    """Sends through one server, whose certificate is verified wherever TLS is used."""

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
        message = compose(mail, self.sender, address)
        options = [] if address.isascii() else ["SMTPUTF8", "BODY=8BITMIME"]
        about: SpanAttributes = {"server.address": self.server.host}
        with (
            spans.step_span("mail", "client", about),
            self.breaker.protect(),
            time_limit(self.timeout),
            self._logged_in() as connection,
        ):
            if options and not connection.has_extn("smtputf8"):
                raise errors.MAIL_RECIPIENT_NOT_ASCII()
            connection.sendmail(self.sender.address, [address], message, options)
            # The server has the mail now, whatever it answers to this.
            with suppress(smtplib.SMTPException):
                connection.quit()

    def log_in(self) -> None:
        """Log in to the server and send nothing; raises ``TransientError``."""
        with self.breaker.protect(), time_limit(self.timeout), self._logged_in() as connection:
            connection.quit()

    @contextmanager
    def _logged_in(self) -> Iterator[smtplib.SMTP]:
        """A connection to the server; its errors, and those of what is done with it, are ours."""
        try:
            with closing(self._connect()) as connection:
                if self.server.security is MailSecurity.STARTTLS:
                    connection.starttls(context=self._tls)
                if self.server.login is not None:
                    connection.login(self.server.login.user, self.server.login.password)
                connection.ehlo_or_helo_if_needed()
                yield connection
        except smtplib.SMTPException as error:
            raise _verdict(error) from None
        # smtplib raises ValueError for a login's challenge that can't be decoded.
        except (OSError, ValueError) as error:
            raise ServerFailed(_SERVER, type(error).__name__) from None

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return create_tls_context()

    def _connect(self) -> smtplib.SMTP:
        # We introduce ourselves by the sender's domain: the lookup of this machine's own name can
        # take longer than any call.
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


def _verdict(error: smtplib.SMTPException) -> Exception:
    """The error of a failed conversation: one that is worth another try, or an error."""
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return TransientError("The mail server offers no STARTTLS, or no login.")
    code = None
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        [(code, _)] = error.recipients.values()
    elif isinstance(error, smtplib.SMTPResponseException):
        code = error.smtp_code
    what = f"{type(error).__name__} {code or ''}".rstrip()
    if code in _NO_SERVICE:
        return ServerFailed(_SERVER, what)
    if code in _PERMANENT and code not in _LOGIN_REFUSED:
        match error:
            case smtplib.SMTPRecipientsRefused():
                return errors.MAIL_RECIPIENT_REFUSED(status=code)
            case smtplib.SMTPDataError():
                return errors.MAIL_MESSAGE_REFUSED(status=code)
            case smtplib.SMTPSenderRefused() if code == _TOO_LARGE:
                return errors.MAIL_TOO_LARGE(status=code)
    # For now, or for what an operator can mend: a login, the sender, settings that are wrong.
    return TransientError(f"The mail server refuses the mail ({what}).")
