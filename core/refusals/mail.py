"""Mails that will never be taken, however often they are sent."""

from core.errors import Kind
from core.refusals.refusal import Refusal

MAIL_UNWRITABLE = Refusal(
    Kind.PROVIDER_FAILED,
    "mail.refused",
    "{what} can't be put into a mail.",
    examples={"what": "A header"},
)
MAIL_RECIPIENT_INVALID = Refusal(
    Kind.PROVIDER_FAILED, "mail.refused", "The recipient is not an e-mail address."
)
MAIL_RECIPIENT_NOT_ASCII = Refusal(
    Kind.PROVIDER_FAILED,
    "mail.refused",
    "The mail server takes ASCII characters only before the @.",
)
MAIL_RECIPIENT_REFUSED = Refusal(
    Kind.PROVIDER_FAILED,
    "mail.refused",
    "The mail server refused the recipient ({status}).",
    examples={"status": 550},
)
MAIL_MESSAGE_REFUSED = Refusal(
    Kind.PROVIDER_FAILED,
    "mail.refused",
    "The mail server refused the message ({status}).",
    examples={"status": 554},
)
MAIL_TOO_LARGE = Refusal(
    Kind.PROVIDER_FAILED,
    "mail.refused",
    "The message is too large for the mail server ({status}).",
    examples={"status": 552},
)
