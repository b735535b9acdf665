"""The interface for sending an e-mail to a person."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Mail:
    """An e-mail to one person, as plain text and as HTML.

    Attributes:
        headers: additional headers, such as List-Unsubscribe. The mail adapter adds From, To,
            Subject, Date, Message-ID, and headers that prevent automatic replies.
        key: the identifier in the Message-ID, which consists of letters, digits and "-". All
            attempts to send a mail use the same key, so that mail programs recognise duplicates.
        sender_name: a name that mail programs show in addition to the installation's name. The
            sender address is always the installation's address.
    """

    to: str
    subject: str
    text: str
    html: str
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    sender_name: str | None = None


class Mailer(Protocol):
    def send(self, mail: Mail) -> None:
        """Raise ``TransientError`` if a retry may succeed, and ``mail.refused`` if the mail server
        permanently rejects the address or the message.
        """
