"""The interface for sending an e-mail to a person through a mail server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Mail:
    """An e-mail to one person, as plain text and as HTML.

    Attributes:
        headers: additional headers, such as List-Unsubscribe. The mail adapter sets From, To,
            Subject, Date, Message-ID, and the headers that suppress automatic replies.
        key: the identifier in the Message-ID, made of letters, digits and "-". Every attempt to
            send a mail uses the same key, so that mail programs recognise duplicates.
        sender_name: a sender name that mail programs show next to the installation's name. The
            sender address is always the address of the installation.
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
        """Send a mail through the mail server.

        Raises ``TransientError`` if a retry may succeed. Raises ``mail.refused`` if the mail server
        permanently refuses the address or the message.
        """
