"""Quotes strangers' text in mails, and removes addresses and telephone numbers from the text.

A stranger can make Pressroom mail a list's title to any address. Mail programs turn web addresses
and telephone numbers into links, so an unfiltered title could carry an advertisement.
"""

import re
from functools import cache
from typing import TYPE_CHECKING
from unicodedata import category, normalize

from core.languages.shown_lines import fold_look_alikes
from services.accounts.email_addresses import mask_address

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

MAX_SHOWN_CHARACTERS = 60
_ELLIPSIS = "…"
# The invisible ZERO WIDTH NON-JOINER, which prevents mail programs from recognising an address.
_NON_JOINER = "\u200c"
_SEPARATORS = re.compile(r"[@.]")
# Characters that browsers accept as dots in domain names.
_FULL_STOPS = str.maketrans("\u3002\uff61\u2024\u2027", "....")
# Replaces quotation marks with apostrophes, because a quotation mark would end the quotation.
_QUOTES = str.maketrans(dict.fromkeys('"“”„‟«»\u2039\u203a\u301d\u301e\uff02', "'"))
# Matches typical parts of URLs, e-mail addresses and IP addresses, and spellings such as "(at)" and
# "[dot]". Domain names are recognised separately, by their top-level domain.
_CONTACT_DETAILS = re.compile(
    r"//|@|\\|\bwww\b|\bmailto\b|\bhttps?\b:|xn--|(?<!\d)\d+(?:\.\d+){3}"
    r"|[(\[]\s*(?:\.|dot|at|punkt|punto|point|ponto)\s*[)\]]",
    re.IGNORECASE,
)
# Matches a word after a full stop without a space, which may be a top-level domain.
_LABEL = re.compile(r"(?<=[^\W_]\.)[^\W\d_]{2,}")
# The top-level domains that RFC 2606 and RFC 6761 reserve, and the domain .onion of the Tor
# network.
_SPECIAL_DOMAINS = frozenset({"example", "invalid", "localhost", "test", "local", "onion"})
# Matches a number with at least seven digits, which may be a telephone number.
_LONG_NUMBER = re.compile(r"\+?\d(?:[\s().\-/]{0,3}\d){6,}")
# Matches a date or two years such as "2019-2021", so that their digits aren't mistaken for a
# telephone number.
_DATE = re.compile(
    r"(?:\d{1,2}[./-] ?){2}(?:19|20)\d\d|(?:19|20)\d\d-\d{1,2}-\d{1,2}"
    r"|(?:19|20)\d\d[-/ ]{1,3}(?:19|20)\d\d"
)
_WHITESPACE = re.compile(r"\s+")
_ELLIPSES = re.compile(rf"{_ELLIPSIS}(?: ?{_ELLIPSIS})+")
# The Unicode categories of control, format, private and unassigned characters.
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def contains_contact_details(text: str) -> bool:
    """Return whether a text contains a URL, a domain, an e-mail address or a telephone number.

    Disguised addresses such as "name (at) example" count as e-mail addresses.
    """
    # Remove invisible format characters, which could hide an address from the search.
    visible_text = "".join(
        character for character in _replace_lookalikes(text) if category(character) != "Cf"
    )
    return _contains_address(visible_text) or any(
        map(_is_telephone_number, _LONG_NUMBER.finditer(visible_text))
    )


def quote_text(text: str) -> str:
    return f"“{hide_contact_details(text)}”"


def hide_contact_details(text: str) -> str:
    normalised = _WHITESPACE.sub(" ", _replace_lookalikes(text))
    visible_text = "".join(
        character for character in normalised if category(character) not in _INVISIBLE_CATEGORIES
    )
    words = visible_text.translate(_QUOTES).split()
    without_addresses = " ".join(_ELLIPSIS if _contains_address(word) else word for word in words)
    without_numbers = _LONG_NUMBER.sub(
        lambda match: _ELLIPSIS if _is_telephone_number(match) else match[0], without_addresses
    )
    shortened = _ELLIPSES.sub(_ELLIPSIS, without_numbers)
    if len(shortened) > MAX_SHOWN_CHARACTERS:
        shortened = shortened[: MAX_SHOWN_CHARACTERS - 1].rstrip(f" {_ELLIPSIS}") + _ELLIPSIS
    return shortened or _ELLIPSIS


def obfuscate_address(address: str) -> str:
    """Mask an e-mail address, and add invisible characters, so that mail programs don't link it."""
    masked = mask_address(address)
    if len(masked) > MAX_SHOWN_CHARACTERS:
        masked = masked[: MAX_SHOWN_CHARACTERS - 1] + _ELLIPSIS
    return _SEPARATORS.sub(rf"{_NON_JOINER}\g<0>{_NON_JOINER}", masked)


def _replace_lookalikes(text: str) -> str:
    return normalize("NFKC", text.translate(_FULL_STOPS)).translate(_FULL_STOPS)


def _contains_address(text: str) -> bool:
    labels = (match[0].casefold() for match in _LABEL.finditer(text))
    domains = (domain for label in labels for domain in (label, fold_look_alikes(label)))
    is_domain = any(
        domain in _SPECIAL_DOMAINS or _load_suffixes().publicsuffix(domain) is not None
        for domain in domains
    )
    return is_domain or _CONTACT_DETAILS.search(text) is not None


@cache
def _load_suffixes() -> "PublicSuffixList":
    # Import the list of public suffixes only when needed, because loading it is slow.
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(accept_unknown=False)


def _is_telephone_number(match: re.Match[str]) -> bool:
    return _DATE.fullmatch(match[0]) is None
