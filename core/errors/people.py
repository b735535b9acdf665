"""Errors about users, passwords, addresses and account mails."""

from core.errors.catalogue import conflict, forbidden, invalid, malformed, not_found

USER_NOT_FOUND = not_found("user.not_found", "This user doesn't exist.")
USER_NOT_FOUND_BY_EMAIL = not_found(
    "user.not_found", "There is no user with the address {email}.", email="ann@example.com"
)
USER_EXISTS = conflict(
    "user.exists", "There is already a user with the address {email}.", email="ann@example.com"
)
# A person gets ``account.address_taken`` only after confirming both the old and the new address.
ADDRESS_TAKEN = conflict(
    "account.address_taken",
    "Another account uses this address, and accounts can't be merged. Log in to the other "
    "account, or have it erased first.",
)
ADDRESS_HAS_RECORD = conflict(
    "account.address_has_record",
    "This address is or was on mailing lists. To use the address for your account, agree to erase "
    "the data of these lists about the address.",
)
USER_OWNS_LISTS = conflict(
    "user.owns_lists",
    "This user still has lists. Archive the user's lists first: {slugs}.",
    slugs="weekly, monthly",
)

PASSWORD_LENGTH = invalid(
    "password.length", "A password must have {least} to {most} characters.", least=8, most=1024
)
PASSWORD_COMMON = invalid(
    "password.common",
    "This is one of the {number} most common passwords. Choose another password.",
    number="10,000",
)
PASSWORD_PERSONAL = invalid(
    "password.personal",
    "Your password can't be your name, your address, or the part of your address before the @.",
)
PASSWORD_WRONG = invalid("password.wrong", "Your current password is wrong.")
PASSWORD_CHANGED = conflict("password.changed", "The password was changed by another request.")
EMAIL_INVALID = invalid(
    "email.invalid", "This is not a valid e-mail address: {reason}", reason="it has no @."
)

SECOND_FACTOR_WRONG = invalid("second_factor.wrong", "This code is wrong or has already been used.")
PASSKEY_INVALID = invalid("passkey.invalid", "This passkey doesn't belong to this account.")
PASSKEY_NAME = invalid(
    "passkey.name", "The name of a passkey must have 1 to {most} characters.", most=100
)
PASSKEYS_TOO_MANY = conflict(
    "passkey.too_many", "A user can have at most {most} passkeys.", most=20
)
PASSKEY_TAKEN = conflict("passkey.taken", "This device is already registered.")
SECOND_FACTOR_NOT_FOUND = not_found("second_factor.not_found", "This second factor doesn't exist.")
SECOND_FACTOR_MISSING = conflict("second_factor.missing", "Set up a second factor first.")

LINK_MISSING = malformed("link.missing", "A token is required.")
LINK_AMBIGUOUS = malformed(
    "link.ambiguous", "The request contains more than one token. Send only one token."
)
LINK_INVALID = forbidden("link.invalid", "This link is invalid or has expired.")
LINK_USED = forbidden("link.used", "This link has already been used.")
PREFERENCES_LINK_INVALID = forbidden(
    "preferences_link.invalid", "This link is invalid or has expired."
)
PREFERENCES_LINK_USED = forbidden("preferences_link.used", "This link has already been used.")
USER_HAS_ACCOUNT = forbidden(
    "user.has_account",
    "You have an account, so you can't erase your data with a mailed link. Log in instead.",
)
VISIT_OVER = forbidden(
    "visit.over", "This page requires a link that was mailed within the last hour."
)
ACCOUNT_LINK_INVALID = forbidden("account_link.invalid", "This link is invalid or has expired.")
ACCOUNT_LINK_USED = forbidden("account_link.used", "This link has already been used.")
