"""Mails that will never be taken, however often they are sent."""

from core.refusals.refusal import provider_failed

MAIL_UNWRITABLE = provider_failed(
    "mail.refused", "{what} can't be put into a mail.", what="A header"
)
MAIL_RECIPIENT_INVALID = provider_failed("mail.refused", "The recipient is not an e-mail address.")
MAIL_RECIPIENT_NOT_ASCII = provider_failed(
    "mail.refused", "The mail server takes ASCII characters only before the @."
)
MAIL_RECIPIENT_REFUSED = provider_failed(
    "mail.refused", "The mail server refused the recipient ({status}).", status=550
)
MAIL_MESSAGE_REFUSED = provider_failed(
    "mail.refused", "The mail server refused the message ({status}).", status=554
)
MAIL_TOO_LARGE = provider_failed(
    "mail.refused", "The message is too large for the mail server ({status}).", status=552
)
