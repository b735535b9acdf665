"""Errors about users, passwords, addresses and account mails."""

from core.errors.catalogue import conflict, forbidden, invalid, malformed, not_found

USER_NOT_FOUND = not_found("user.not_found", "There is no such user.")
USER_NOT_FOUND_BY_EMAIL = not_found(
    "user.not_found", "There is no user {email}.", email="ann@example.com"
)
USER_EXISTS = conflict("user.exists", "There is a user {email} already.", email="ann@example.com")
# A person gets ``account.address_taken`` only after confirming both the old and the new address.
ADDRESS_TAKEN = conflict(
    "account.address_taken",
    "The address belongs to another account, with a login or with things such as lists, keys or "
    "credits. Two accounts don't become one: log in to that one, or have it erased first.",
)
ADDRESS_HAS_RECORD = conflict(
    "account.address_has_record",
    "Lists have a record of the address, which has to be erased before the account can have it.",
)
USER_OWNS_LISTS = conflict(
    "user.owns_lists", "Archive their lists first: {slugs}.", slugs="weekly, monthly"
)

PASSWORD_LENGTH = invalid(
    "password.length", "A password has {least} to {most} characters.", least=8, most=1024
)
PASSWORD_COMMON = invalid(
    "password.common",
    "This is one of the {number} most common passwords. Choose another one.",
    number="10,000",
)
PASSWORD_PERSONAL = invalid(
    "password.personal", "A password is not your name, your address, or the part before its @."
)
PASSWORD_WRONG = invalid("password.wrong", "That isn’t your present password.")
PASSWORD_CHANGED = conflict("password.changed", "The password has just been changed.")
EMAIL_INVALID = invalid("email.invalid", "Not an e-mail address: {reason}", reason="it has no @.")

SECOND_FACTOR_WRONG = invalid("second_factor.wrong", "This code is wrong, or was used before.")
PASSKEY_INVALID = invalid("passkey.invalid", "This passkey is not one of this account.")
PASSKEY_NAME = invalid("passkey.name", "A passkey's name has 1 to {most} characters.", most=100)
PASSKEYS_TOO_MANY = conflict("passkey.too_many", "A person has at most {most} passkeys.", most=20)
PASSKEY_TAKEN = conflict("passkey.taken", "This device is registered already.")
SECOND_FACTOR_NOT_FOUND = not_found("second_factor.not_found", "There is no such second factor.")
SECOND_FACTOR_MISSING = conflict("second_factor.missing", "Set up a second factor first.")

LINK_MISSING = malformed("link.missing", "A token is required.")
LINK_AMBIGUOUS = malformed("link.ambiguous", "The request carries tokens that differ.")
LINK_INVALID = forbidden("link.invalid", "This link is not valid, or not any more.")
LINK_USED = forbidden("link.used", "This link has been used.")
PREFERENCES_LINK_INVALID = forbidden(
    "preferences_link.invalid", "This link is not valid, or not any more."
)
PREFERENCES_LINK_USED = forbidden("preferences_link.used", "This link has been used.")
USER_HAS_ACCOUNT = forbidden(
    "user.has_account", "This person has an account, which no mailed link erases."
)
VISIT_OVER = forbidden("visit.over", "This needs a link that was mailed within the last hour.")
ACCOUNT_LINK_INVALID = forbidden("account_link.invalid", "This link is not valid, or not any more.")
ACCOUNT_LINK_USED = forbidden("account_link.used", "This link has been used.")
