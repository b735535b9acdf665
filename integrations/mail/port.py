"""The port of mail servers: a mail, and what sends it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Mail:
    """A message to one person, as plain text and as HTML."""

    to: str
    subject: str
    text: str
    html: str
    # Additional headers, such as List-Unsubscribe. The mail adapter sets From, To, Subject, Date,
    # Message-ID, and the headers that suppress automatic replies.
    headers: Mapping[str, str] = field(default_factory=dict)
    # The same at every attempt, so that a recipient who gets the mail twice can tell. Letters,
    # digits and "-".
    key: str | None = None
    # The sender beside the installation, whose address the mail keeps.
    sender_name: str | None = None


class Mailer(Protocol):
    def send(self, mail: Mail) -> None:
        """Hand the mail to the server that delivers it.

        Raises ``TransientError`` when another try may help, and ``mail.refused`` when it won't: the
        address or the message was refused for good.
        """
