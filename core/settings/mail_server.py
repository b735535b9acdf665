"""Parses the settings for the mail server and for the sender of mails."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self
from urllib.parse import unquote, urlsplit

_ADDRESS = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]+@[A-Za-z0-9.-]*[A-Za-z0-9]"
_BARE_ADDRESS = re.compile(rf"{_ADDRESS}\Z")
_SENDER = re.compile(rf"(?:(?P<name>[^<>]*)<(?P<address>{_ADDRESS})>|(?P<bare>{_ADDRESS}))\Z")


class MailSecurity(StrEnum):
    """The encryption of connections to the mail server, selected by the scheme of its URL."""

    NONE = "smtp"
    TLS = "smtps"
    STARTTLS = "smtp+starttls"


_DEFAULT_PORTS = {MailSecurity.NONE: 25, MailSecurity.TLS: 465, MailSecurity.STARTTLS: 587}


@dataclass(frozen=True)
class SmtpLogin:
    user: str
    password: str


@dataclass(frozen=True)
class MailServer:
    host: str
    port: int
    security: MailSecurity
    login: SmtpLogin | None = None

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse a mail server's URL in the format ``smtp://[user:password@]host[:port]``.

        The error message never quotes the mail server's URL, because the URL may contain a
        password.
        """
        try:
            parts = urlsplit(url)
            security = MailSecurity(parts.scheme)
            port = parts.port
        except ValueError:
            # Discard the error of ``urlsplit``, because the error's message could quote the
            # password in the URL.
            parts = None
            security = None
            port = None
        if (
            parts is None
            or security is None
            or not (parts.hostname and parts.hostname.isascii())
            or port == 0
            or parts.path not in {"", "/"}
            or parts.query
            or parts.fragment
        ):
            raise ValueError(
                "must be smtp://, smtps:// or smtp+starttls:// with a host, and optionally a "
                "percent-encoded user and password, and a port"
            )
        login = None
        if parts.username is not None:
            login = SmtpLogin(unquote(parts.username), unquote(parts.password or ""))
            if not (login.user and login.password):
                raise ValueError("must contain both a user and a password, or neither")
            if not (login.user + login.password).isascii():
                raise ValueError("must have only ASCII characters in the user and password")
        return cls(parts.hostname, port or _DEFAULT_PORTS[security], security, login)


@dataclass(frozen=True)
class MailSender:
    name: str
    address: str

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _SENDER.match(text.strip())
        if match is not None and text.isprintable():
            name = (match["name"] or "").strip().removeprefix('"').removesuffix('"')
            return cls(name, match["address"] or match["bare"])
        raise ValueError(
            "must be one address, or Name <address>; the address must be ASCII, so write an "
            "international domain in its xn-- form"
        )

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2]

    def build_name(self, sender_name: str | None) -> str:
        """Append the installation's name, so that a list owner can't impersonate anyone."""
        if sender_name is None:
            return self.name
        return f"{sender_name} via {self.name or self.domain}"


def require_address(text: str) -> None:
    """Raise ``ValueError`` unless the text is an ASCII e-mail address without a name."""
    if not _BARE_ADDRESS.match(text):
        raise ValueError("must be one ASCII e-mail address such as operator@example.com")
