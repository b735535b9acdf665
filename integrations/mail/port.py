"""The interface of mail servers, which send a mail to a person."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Mail:
    """A message to one person, as plain text and as HTML.

    Attributes:
        headers: additional headers, such as List-Unsubscribe. The mail adapter sets From, To,
            Subject, Date, Message-ID, and the headers that suppress automatic replies.
        key: the identifier in the Message-ID, made of letters, digits and "-". Every attempt to
            send the mail uses the same key, so that mail programs recognise duplicates.
        sender_name: a name to show in addition to the name of the installation. The address of the
            sender stays the address of the installation.
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
        """Hand the mail over to the mail server.

        Raises ``TransientError`` if a retry may succeed. Raises ``mail.refused`` if the server
        permanently refuses the address or the message.
        """
