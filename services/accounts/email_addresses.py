"""Validates and normalises e-mail addresses, fast enough for files with millions of addresses.

Whitespace and other invisible characters before and after an e-mail address are removed. The
library email-validator validates and normalises addresses. Because the library email-validator is
slow, a regular expression first recognises most valid addresses. A test with generated addresses
checks that the regular expression and the library email-validator give the same results.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from email_validator import SPECIAL_USE_DOMAIN_NAMES, EmailNotValidError, validate_email

from core.errors.people import EMAIL_INVALID
from core.languages.shown_lines import has_invisible, strip_invisible

# The maximum size of an e-mail address in UTF-8. Texts that exceed ``MAX_ADDRESS_BYTES`` are
# rejected before the slow library email-validator validates them.
MAX_ADDRESS_BYTES = 254

_ATOM = r"[a-zA-Z0-9_!#$%&'*+\-/=?^`{|}~]++"
# The regular expression rejects domain labels with "--", so that the library email-validator checks
# Punycode and reserved labels.
_LABEL = r"[a-zA-Z0-9]++(?:-[a-zA-Z0-9]++)*+"
_SPECIAL_USE = "|".join(re.escape(name) for name in SPECIAL_USE_DOMAIN_NAMES)
# The regular expression accepts only addresses of up to 64 characters, which can't exceed a length
# limit on labels or domains.
_PLAIN = re.compile(
    rf"(?=.{{1,64}}\Z){_ATOM}(?:\.{_ATOM})*+"
    rf"@(?!(?:[^@]*\.)?(?i:{_SPECIAL_USE})\Z)"
    rf"(?:{_LABEL}\.)++{_LABEL}(?<=[a-zA-Z])\Z",
    re.ASCII,
)
_GMAIL = frozenset({"gmail.com", "googlemail.com"})


class InvalidAddress(NamedTuple):
    """The reason why a text is not a valid e-mail address, for the person who typed the text."""

    reason: str


def mask_address(email: str) -> str:
    """Return the e-mail address with only the first character before the @ visible.

    The owner of an address recognises its masked form, but a stranger who reads a forwarded mail
    can't reconstruct the address.
    """
    local, _, domain = email.rpartition("@")
    return f"{local[:1]}…@{domain}"


def normalise_address(address: str) -> str:
    """Return the e-mail address in Unicode form NFC and lower case, without Punycode in the domain.

    Invisible characters before and after the address are removed. Dots and plus tags before the @
    are kept. ``normalise_address`` makes no DNS request to check the domain. Raises
    ``email.invalid``.
    """
    (normalised,) = normalise_addresses([address])
    if isinstance(normalised, InvalidAddress):
        raise EMAIL_INVALID(reason=normalised.reason)
    return normalised


def derive_mailbox(address: str) -> str:
    """Return the mailbox that most likely receives the mails to a normalised e-mail address.

    Mail servers usually ignore a plus tag in an address. Gmail ignores dots in an address, and
    receives mail for two domains. Use the result of ``derive_mailbox`` only for counting mails,
    because two people may have addresses with the same mailbox.
    """
    local, _, domain = address.rpartition("@")
    local = local.partition("+")[0] or local
    if domain in _GMAIL:
        return f"{local.replace('.', '')}@gmail.com"
    return f"{local}@{domain}"


def normalise_addresses(addresses: Iterable[str]) -> list[str | InvalidAddress]:
    """Return the normalised e-mail addresses in the same order as ``addresses``.

    An invalid e-mail address is returned as an ``InvalidAddress``.
    """
    plain = _PLAIN.match
    return [address.lower() if plain(address) else _normalise(address) for address in addresses]


def normalise_domain(domain: str) -> str | None:
    """Return the normalised domain name, or ``None`` if the text isn't a domain name."""
    (normalised,) = normalise_addresses([f"a@{strip_invisible(domain)}"])
    return None if isinstance(normalised, InvalidAddress) else normalised.removeprefix("a@")


def _normalise(text: str) -> str | InvalidAddress:
    """Normalise an e-mail address that the fast regular expression did not accept."""
    address = strip_invisible(text)
    if _PLAIN.match(address):
        return address.lower()
    if len(address) > MAX_ADDRESS_BYTES:
        return InvalidAddress(f"It is longer than {MAX_ADDRESS_BYTES} characters.")
    # Reject whitespace and invisible characters inside the address, because the library
    # email-validator would silently remove some of them.
    if has_invisible(address):
        return InvalidAddress("It has a blank or an invisible character inside.")
    try:
        return validate_email(address, check_deliverability=False).normalized.lower()
    except EmailNotValidError as error:
        return InvalidAddress(str(error))
