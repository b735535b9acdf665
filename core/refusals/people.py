"""Users, their passwords and addresses, and what is mailed to them."""

from core.errors import Kind
from core.refusals.refusal import Refusal

USER_NOT_FOUND = Refusal(Kind.NOT_FOUND, "user.not_found", "There is no such user.")
USER_NOT_FOUND_BY_EMAIL = Refusal(
    Kind.NOT_FOUND,
    "user.not_found",
    "There is no user {email}.",
    examples={"email": "ann@example.com"},
)
USER_EXISTS = Refusal(
    Kind.CONFLICT,
    "user.exists",
    "There is a user {email} already.",
    examples={"email": "ann@example.com"},
)
# To a person, who may not hear whose it is.
USER_ADDRESS_TAKEN = Refusal(Kind.CONFLICT, "user.exists", "This address is in use already.")
USER_OWNS_LISTS = Refusal(
    Kind.CONFLICT,
    "user.owns_lists",
    "Archive or hand over their lists first: {slugs}.",
    examples={"slugs": "weekly, monthly"},
)

PASSWORD_LENGTH = Refusal(
    Kind.INVALID,
    "password.length",
    "A password has {least} to {most} characters.",
    examples={"least": 8, "most": 1024},
)
PASSWORD_WRONG = Refusal(Kind.INVALID, "password.wrong", "That isn’t your present password.")
PASSWORD_CHANGED = Refusal(Kind.CONFLICT, "password.changed", "The password has just been changed.")
EMAIL_INVALID = Refusal(
    Kind.INVALID,
    "email.invalid",
    "Not an e-mail address: {reason}",
    examples={"reason": "it has no @."},
)

LINK_MISSING = Refusal(Kind.MALFORMED, "link.missing", "A token is required.")
LINK_AMBIGUOUS = Refusal(
    Kind.MALFORMED, "link.ambiguous", "The request carries tokens that differ."
)
LINK_INVALID = Refusal(Kind.FORBIDDEN, "link.invalid", "This link is not valid, or not any more.")
LINK_USED = Refusal(Kind.FORBIDDEN, "link.used", "This link has been used.")
ACCOUNT_LINK_INVALID = Refusal(
    Kind.FORBIDDEN, "account_link.invalid", "This link is not valid, or not any more."
)
ACCOUNT_LINK_USED = Refusal(Kind.FORBIDDEN, "account_link.used", "This link has been used.")
