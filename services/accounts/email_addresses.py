"""Validates and normalises e-mail addresses, fast enough for files with millions of addresses.

Whitespace and other invisible characters around an address are removed. The library email-validator
then decides whether the address is valid, and normalises the address. The library is slow, so a
regular expression first recognises most valid addresses. A test with generated addresses checks
that the library accepts the same addresses with the same result.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from email_validator import SPECIAL_USE_DOMAIN_NAMES, EmailNotValidError, validate_email

from core.errors.people import EMAIL_INVALID
from core.languages.shown_lines import has_invisible, strip_invisible

# The largest size of an e-mail address in UTF-8. Longer texts are rejected first, because the
# library takes longer for a longer text.
MAX_ADDRESS_BYTES = 254

_ATOM = r"[a-zA-Z0-9_!#$%&'*+\-/=?^`{|}~]++"
# Labels with "--" don't match, so that the library decides about Punycode and reserved labels.
_LABEL = r"[a-zA-Z0-9]++(?:-[a-zA-Z0-9]++)*+"
_SPECIAL_USE = "|".join(re.escape(name) for name in SPECIAL_USE_DOMAIN_NAMES)
# Addresses of up to 64 characters can't exceed the length limit of a label or a domain.
_PLAIN = re.compile(
    rf"(?=.{{1,64}}\Z){_ATOM}(?:\.{_ATOM})*+"
    rf"@(?!(?:[^@]*\.)?(?i:{_SPECIAL_USE})\Z)"
    rf"(?:{_LABEL}\.)++{_LABEL}(?<=[a-zA-Z])\Z",
    re.ASCII,
)
_GMAIL = frozenset({"gmail.com", "googlemail.com"})


class InvalidAddress(NamedTuple):
    """The reason why a text is not an e-mail address, for the person who typed the text."""

    reason: str


def mask_address(email: str) -> str:
    """Return the address with only the first character of the local part visible.

    The owner still recognises the address, but readers of a forwarded mail don't learn it.
    """
    local, _, domain = email.rpartition("@")
    return f"{local[:1]}…@{domain}"


def normalise_address(address: str) -> str:
    """Return the address in NFC and lower case, with its domain in Unicode instead of Punycode.

    Invisible characters around the address are removed. Dots and plus tags are kept. The function
    makes no DNS request. Raises ``email.invalid``.
    """
    (normalised,) = normalise_addresses([address])
    if isinstance(normalised, InvalidAddress):
        raise EMAIL_INVALID(reason=normalised.reason)
    return normalised


def derive_mailbox(address: str) -> str:
    """Return the mailbox to which a normalised address most likely delivers.

    Most servers ignore a plus tag, and Gmail ignores dots and has two domains. The result is only
    used to count mails. Stored addresses with the same mailbox belong to different people.
    """
    local, _, domain = address.rpartition("@")
    local = local.partition("+")[0] or local
    if domain in _GMAIL:
        return f"{local.replace('.', '')}@gmail.com"
    return f"{local}@{domain}"


def normalise_addresses(addresses: Iterable[str]) -> list[str | InvalidAddress]:
    """Normalise each text in order. A text that is not an address becomes an ``InvalidAddress``."""
    plain = _PLAIN.match
    return [address.lower() if plain(address) else _normalise(address) for address in addresses]


def normalise_domain(domain: str) -> str | None:
    """Return the normalised domain, or ``None`` if the text isn't a domain."""
    (normalised,) = normalise_addresses([f"a@{strip_invisible(domain)}"])
    return None if isinstance(normalised, InvalidAddress) else normalised.removeprefix("a@")


def _normalise(text: str) -> str | InvalidAddress:
    """Normalise an address that the regular expression did not recognise as valid."""
    address = strip_invisible(text)
    if _PLAIN.match(address):
        return address.lower()
    if len(address) > MAX_ADDRESS_BYTES:
        return InvalidAddress(f"It is longer than {MAX_ADDRESS_BYTES} characters.")
    # Reject whitespace and invisible characters before the library silently removes some of them
    # from the domain.
    if has_invisible(address):
        return InvalidAddress("It has a blank or an invisible character inside.")
    try:
        return validate_email(address, check_deliverability=False).normalized.lower()
    except EmailNotValidError as error:
        return InvalidAddress(str(error))
