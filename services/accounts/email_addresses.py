"""Validates and normalises e-mail addresses, fast enough for files with millions of addresses.

Only addresses that a fast regular expression doesn't recognise are passed to the library
email-validator, which is slow. A test with random addresses checks that the library accepts all
addresses that the regular expression recognises.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from email_validator import SPECIAL_USE_DOMAIN_NAMES, EmailNotValidError, validate_email

from core.errors.people import EMAIL_INVALID
from core.languages.shown_lines import has_invisible, strip_invisible

# The maximum size of an e-mail address in UTF-8. Longer texts are rejected without calling the
# library email-validator, which is slow.
MAX_ADDRESS_BYTES = 254

_ATOM = r"[a-zA-Z0-9_!#$%&'*+\-/=?^`{|}~]++"
# Domain labels with "--" don't match, because the library must decide whether they are Punycode or
# reserved.
_LABEL = r"[a-zA-Z0-9]++(?:-[a-zA-Z0-9]++)*+"
_SPECIAL_USE = "|".join(re.escape(name) for name in SPECIAL_USE_DOMAIN_NAMES)
# Only addresses of up to 64 characters match, so that no domain label can be too long.
_PLAIN = re.compile(
    rf"(?=.{{1,64}}\Z){_ATOM}(?:\.{_ATOM})*+"
    rf"@(?!(?:[^@]*\.)?(?i:{_SPECIAL_USE})\Z)"
    rf"(?:{_LABEL}\.)++{_LABEL}(?<=[a-zA-Z])\Z",
    re.ASCII,
)
_GMAIL = frozenset({"gmail.com", "googlemail.com"})


class InvalidAddress(NamedTuple):
    """The reason why a text isn't a valid e-mail address, as a sentence for the user."""

    reason: str


def mask_address(email: str) -> str:
    """Mask all characters before the @ except the first.

    A stranger who reads a forwarded mail can't reconstruct the address.
    """
    local, _, domain = email.rpartition("@")
    return f"{local[:1]}…@{domain}"


def normalise_address(address: str) -> str:
    """Convert an e-mail address to lower case and Unicode NFC, and decode Punycode in its domain.

    Whitespace and invisible characters around the address are removed, but dots and plus tags
    aren't. The domain of the address isn't looked up in the DNS.
    """
    (normalised,) = normalise_addresses([address])
    if isinstance(normalised, InvalidAddress):
        raise EMAIL_INVALID(reason=normalised.reason)
    return normalised


def derive_mailbox(address: str) -> str:
    """Return the mailbox that probably receives the mails to an e-mail address.

    Most mail servers ignore a plus tag. Gmail also ignores dots before the @, and treats
    ``gmail.com`` and ``googlemail.com`` as the same domain. Use the mailbox only to count mails,
    because two people may seem to have the same mailbox.
    """
    local, _, domain = address.rpartition("@")
    local = local.partition("+")[0] or local
    if domain in _GMAIL:
        return f"{local.replace('.', '')}@gmail.com"
    return f"{local}@{domain}"


def normalise_addresses(addresses: Iterable[str]) -> list[str | InvalidAddress]:
    plain = _PLAIN.match
    return [address.lower() if plain(address) else _normalise(address) for address in addresses]


def normalise_domain(domain: str) -> str | None:
    (normalised,) = normalise_addresses([f"a@{strip_invisible(domain)}"])
    return None if isinstance(normalised, InvalidAddress) else normalised.removeprefix("a@")


def _normalise(text: str) -> str | InvalidAddress:
    address = strip_invisible(text)
    if _PLAIN.match(address):
        return address.lower()
    if len(address) > MAX_ADDRESS_BYTES:
        return InvalidAddress(f"The address has more than {MAX_ADDRESS_BYTES} characters.")
    # Reject invisible characters inside an address, because the library would silently remove some
    # of them.
    if has_invisible(address):
        return InvalidAddress("The address contains a space or an invisible character.")
    try:
        return validate_email(address, check_deliverability=False).normalized.lower()
    except EmailNotValidError as error:
        return InvalidAddress(str(error))
