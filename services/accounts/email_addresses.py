"""E-mail addresses: one rule for all of the product, fast enough for files of millions.

Whitespace and other invisible characters around an address are removed. Then the library
email-validator decides whether the address is valid, and normalises it. The library is slow, so a
regular expression recognises most valid addresses first. A test with generated addresses checks
that the library gives the same result for each address that the expression accepts.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from email_validator import SPECIAL_USE_DOMAIN_NAMES, EmailNotValidError, validate_email

from core.errors.people import EMAIL_INVALID
from core.languages.shown_lines import has_invisible, strip_invisible

# In UTF-8. No longer text is an address, and the library's time grows with the text's length.
MAX_ADDRESS_BYTES = 254

_ATOM = r"[a-zA-Z0-9_!#$%&'*+\-/=?^`{|}~]++"
# Without "--", which leaves Punycode and reserved labels to the library.
_LABEL = r"[a-zA-Z0-9]++(?:-[a-zA-Z0-9]++)*+"
_SPECIAL_USE = "|".join(re.escape(name) for name in SPECIAL_USE_DOMAIN_NAMES)
# At most 64 characters in all, so that no limit on the length of a label or a domain is exceeded.
_PLAIN = re.compile(
    rf"(?=.{{1,64}}\Z){_ATOM}(?:\.{_ATOM})*+"
    rf"@(?!(?:[^@]*\.)?(?i:{_SPECIAL_USE})\Z)"
    rf"(?:{_LABEL}\.)++{_LABEL}(?<=[a-zA-Z])\Z",
    re.ASCII,
)
_GMAIL = frozenset({"gmail.com", "googlemail.com"})


class InvalidAddress(NamedTuple):
    """Why a text is no e-mail address, in words for the person who typed it."""

    reason: str


def masked(email: str) -> str:
    """Enough for the person to recognise their address, and no more: mails are passed on."""
    local, _, domain = email.rpartition("@")
    return f"{local[:1]}…@{domain}"


def normalise_address(address: str) -> str:
    """Return the address in NFC and lower case, with its domain in Unicode instead of Punycode.

    Invisible characters around the address are removed. Dots and plus tags stay as they are. No
    DNS request is made.
    Raises ``email.invalid``.
    """
    (normalised,) = normalise_all([address])
    if isinstance(normalised, InvalidAddress):
        raise EMAIL_INVALID(reason=normalised.reason)
    return normalised


def mailbox_of(address: str) -> str:
    """The mailbox that a normalised address most likely leads to, by which mails are counted.

    Most servers ignore a plus tag, and Gmail ignores dots and has two domains. Nothing else takes
    such addresses for one: they are other people for all that is stored.
    """
    local, _, domain = address.rpartition("@")
    local = local.partition("+")[0] or local
    if domain in _GMAIL:
        return f"{local.replace('.', '')}@gmail.com"
    return f"{local}@{domain}"


def normalise_all(addresses: Iterable[str]) -> list[str | InvalidAddress]:
    """``normalise`` of each text, in order; ``InvalidAddress`` for a text that is no address."""
    plain = _PLAIN.match
    return [address.lower() if plain(address) else _normalise(address) for address in addresses]


def normalise_domain(domain: str) -> str | None:
    """Return the normalised domain, or ``None`` if the text isn't a domain."""
    (normalised,) = normalise_all([f"a@{strip_invisible(domain)}"])
    return None if isinstance(normalised, InvalidAddress) else normalised.removeprefix("a@")


def _normalise(text: str) -> str | InvalidAddress:
    """Normalise an address that the regular expression didn't recognise as valid."""
    address = strip_invisible(text)
    if _PLAIN.match(address):
        return address.lower()
    if len(address) > MAX_ADDRESS_BYTES:
        return InvalidAddress(f"It is longer than {MAX_ADDRESS_BYTES} characters.")
    # Refuse whitespace and invisible characters here, because the library would silently remove
    # some of them from the domain.
    if has_invisible(address):
        return InvalidAddress("It has a blank or an invisible character inside.")
    try:
        return validate_email(address, check_deliverability=False).normalized.lower()
    except EmailNotValidError as error:
        return InvalidAddress(str(error))
