"""Validates and normalises e-mail addresses, fast enough for files with millions of addresses.

Whitespace and other invisible characters before and after an e-mail address are removed. The
library email-validator validates and normalises e-mail addresses. Because the library
email-validator is slow, a regular expression first recognises most valid addresses. A test with
random addresses checks that the regular expression and the library email-validator agree.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from email_validator import SPECIAL_USE_DOMAIN_NAMES, EmailNotValidError, validate_email

from core.errors.people import EMAIL_INVALID
from core.languages.shown_lines import has_invisible, strip_invisible

# The maximum size of an e-mail address in UTF-8. Addresses that exceed ``MAX_ADDRESS_BYTES`` are
# rejected without the library email-validator, because the library is slow.
MAX_ADDRESS_BYTES = 254

_ATOM = r"[a-zA-Z0-9_!#$%&'*+\-/=?^`{|}~]++"
# The fast regular expression rejects domain labels with "--". The slower library email-validator
# decides about labels that contain "--", which may be Punycode or reserved.
_LABEL = r"[a-zA-Z0-9]++(?:-[a-zA-Z0-9]++)*+"
_SPECIAL_USE = "|".join(re.escape(name) for name in SPECIAL_USE_DOMAIN_NAMES)
# The fast regular expression accepts only addresses of up to 64 characters. In an address of up to
# 64 characters, no label and no domain is too long.
_PLAIN = re.compile(
    rf"(?=.{{1,64}}\Z){_ATOM}(?:\.{_ATOM})*+"
    rf"@(?!(?:[^@]*\.)?(?i:{_SPECIAL_USE})\Z)"
    rf"(?:{_LABEL}\.)++{_LABEL}(?<=[a-zA-Z])\Z",
    re.ASCII,
)
_GMAIL = frozenset({"gmail.com", "googlemail.com"})


class InvalidAddress(NamedTuple):
    """Explains to the person who typed a text why it isn't a valid e-mail address."""

    reason: str


def mask_address(email: str) -> str:
    """Return an e-mail address in which only the first character before the @ is visible.

    The owner of the address recognises the masked address, but a stranger who reads a forwarded
    mail can't reconstruct the address.
    """
    local, _, domain = email.rpartition("@")
    return f"{local[:1]}…@{domain}"


def normalise_address(address: str) -> str:
    """Convert an e-mail address to lower case and Unicode NFC, and decode Punycode in its domain.

    Invisible characters before and after the address are removed. ``normalise_address`` keeps dots
    and plus tags before the @. ``normalise_address`` makes no DNS request to check the domain.
    Raises ``email.invalid``.
    """
    (normalised,) = normalise_addresses([address])
    if isinstance(normalised, InvalidAddress):
        raise EMAIL_INVALID(reason=normalised.reason)
    return normalised


def derive_mailbox(address: str) -> str:
    """Return the mailbox that probably receives the mails to an e-mail address.

    Mail servers usually ignore a plus tag in an address. Gmail ignores dots before the @, and has
    two domains that lead to the same mailbox. Use ``derive_mailbox`` only to count mails, because
    it may return the same mailbox for the addresses of two people.
    """
    local, _, domain = address.rpartition("@")
    local = local.partition("+")[0] or local
    if domain in _GMAIL:
        return f"{local.replace('.', '')}@gmail.com"
    return f"{local}@{domain}"


def normalise_addresses(addresses: Iterable[str]) -> list[str | InvalidAddress]:
    """Normalise e-mail addresses, and replace every invalid address with an ``InvalidAddress``.

    ``normalise_addresses`` keeps the order of the addresses.
    """
    plain = _PLAIN.match
    return [address.lower() if plain(address) else _normalise(address) for address in addresses]


def normalise_domain(domain: str) -> str | None:
    """Normalise a domain name, or return ``None`` if the text isn't a domain name."""
    (normalised,) = normalise_addresses([f"a@{strip_invisible(domain)}"])
    return None if isinstance(normalised, InvalidAddress) else normalised.removeprefix("a@")


def _normalise(text: str) -> str | InvalidAddress:
    """Normalise an e-mail address that the fast regular expression didn't recognise."""
    address = strip_invisible(text)
    if _PLAIN.match(address):
        return address.lower()
    if len(address) > MAX_ADDRESS_BYTES:
        return InvalidAddress(f"The address has more than {MAX_ADDRESS_BYTES} characters.")
    # Reject whitespace and invisible characters inside an e-mail address, because the library
    # email-validator would silently remove some of these characters.
    if has_invisible(address):
        return InvalidAddress("The address contains a space or an invisible character.")
    try:
        return validate_email(address, check_deliverability=False).normalized.lower()
    except EmailNotValidError as error:
        return InvalidAddress(str(error))
