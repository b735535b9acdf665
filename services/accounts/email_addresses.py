"""E-mail addresses: one rule for all of the product, fast enough for files of millions.

email-validator is the rule, and two shortcuts give its answer sooner. They only ever accept: an
address that they don't recognise, valid or not, goes to the library. A test on generated addresses
shows that they accept none that the library refuses, and spell each like the library.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple
from unicodedata import is_normalized

from email_validator import SPECIAL_USE_DOMAIN_NAMES, EmailNotValidError, validate_email

from core.errors.people import EMAIL_INVALID

# In UTF-8. No longer text is an address, and the library's time grows with the text's length.
MAX_ADDRESS_BYTES = 254
# Domains that the library checked lately; a list has few that are not plain ASCII.
MAX_CACHED_DOMAINS = 4096

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
# Letters and digits of any script are safe in a local part, in any order.
_WORDS = re.compile(r"([\w+-]++(?:\.[\w+-]++)*+)@([^@]+)\Z")


class InvalidAddress(NamedTuple):
    """Why a text is no e-mail address, in words for the person who typed it."""

    reason: str


def masked(email: str) -> str:
    """Enough for the person to recognise their address, and no more: mails are passed on."""
    local, _, domain = email.rpartition("@")
    return f"{local[:1]}…@{domain}"


def normalise(address: str) -> str:
    """The one spelling of an address: NFC, lower case, the domain in its Unicode form.

    Dots and plus tags stay as they are. The network is not asked.
    Raises ``email.invalid``.
    """
    (found,) = normalise_all([address])
    if isinstance(found, InvalidAddress):
        raise EMAIL_INVALID(reason=found.reason)
    return found


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
    return [
        address.lower() if plain(address) else _by_cached_domain(address) or _by_library(address)
        for address in addresses
    ]


def normalise_domain(domain: str) -> str | None:
    """The domain as it stands in a normalised address; ``None`` for a text that is no domain."""
    if "@" in domain or len(domain) > MAX_ADDRESS_BYTES:
        return None
    if _PLAIN.match(f"a@{domain}"):
        return domain.lower()
    checked = _checked_domain(domain)
    return checked and checked[0].lower()


def _by_cached_domain(address: str) -> str | None:
    """The spelling, when a domain in the cache and the length of the parts decide it."""
    parts = _WORDS.match(address)
    if parts is None or len(address) > MAX_ADDRESS_BYTES or not is_normalized("NFC", parts[1]):
        return None
    local, checked = parts[1], _checked_domain(parts[2])
    if checked is None:
        return None
    domain, ascii_domain = checked
    found = f"{local}@{domain}"
    longest = max(_bytes(address), _bytes(found), _bytes(local) + 1 + len(ascii_domain))
    return found.lower() if longest <= MAX_ADDRESS_BYTES else None


def _bytes(text: str) -> int:
    # A lone surrogate is no character: strict UTF-8 would raise, and the library refuses it.
    return len(text.encode("utf-8", "surrogatepass"))


@lru_cache(MAX_CACHED_DOMAINS)
def _checked_domain(domain: str) -> tuple[str, str] | None:
    try:
        found = validate_email(f"a@{domain}", check_deliverability=False)
    except EmailNotValidError:
        return None
    return found.domain, found.ascii_domain


def _by_library(address: str) -> str | InvalidAddress:
    if len(address) > MAX_ADDRESS_BYTES:
        return InvalidAddress(f"It is longer than {MAX_ADDRESS_BYTES} characters.")
    try:
        return validate_email(address, check_deliverability=False).normalized.lower()
    except EmailNotValidError as error:
        return InvalidAddress(str(error))
