"""Quotes a stranger's text in a mail so that no reader is led to another place.

Mail programs turn addresses and telephone numbers into links. Strangers can choose the title of a
list and can have a mail about the list sent to any address. Without these rules, a title could
advertise a web site or a telephone number to any person.
"""

import re
from functools import cache
from typing import TYPE_CHECKING
from unicodedata import category, normalize

from core.languages.shown_lines import fold_look_alikes

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

MAX_SHOWN_CHARACTERS = 60
_ELLIPSIS = "…"
# Full stops of other scripts, which browsers accept in domain names.
_FULL_STOPS = str.maketrans("\u3002\uff61\u2024\u2027", "....")
# Quotation marks, because a closing quotation mark would end the quotation.
_QUOTES = str.maketrans(dict.fromkeys('"“”„‟«»\u2039\u203a\u301d\u301e\uff02', "'"))
# Parts of a URL, an e-mail address or an IP address, and a full stop or an at sign in brackets. The
# name of a domain is recognised by its top-level domain instead.
_CONTACT_DETAILS = re.compile(
    r"//|@|\\|\bwww\b|\bmailto\b|\bhttps?\b:|xn--|(?<!\d)\d+(?:\.\d+){3}"
    r"|[(\[]\s*(?:\.|dot|at|punkt|punto|point|ponto)\s*[)\]]",
    re.IGNORECASE,
)
# The label after a full stop without a space, which may be a top-level domain.
_LABEL = re.compile(r"(?<=[^\W_]\.)[^\W\d_]{2,}")
# The reserved domains of RFC 2606 and RFC 6761, and .onion, which the Tor browser opens.
_SPECIAL_DOMAINS = frozenset({"example", "invalid", "localhost", "test", "local", "onion"})
# A number of seven or more digits, such as a telephone number.
_LONG_NUMBER = re.compile(r"\+?\d(?:[\s().\-/]{0,3}\d){6,}")
# A date, or a range of two years.
_DATE = re.compile(
    r"(?:\d{1,2}[./-] ?){2}(?:19|20)\d\d|(?:19|20)\d\d-\d{1,2}-\d{1,2}"
    r"|(?:19|20)\d\d[-/ ]{1,3}(?:19|20)\d\d"
)
_WHITESPACE = re.compile(r"\s+")
_ELLIPSES = re.compile(rf"{_ELLIPSIS}(?: ?{_ELLIPSIS})+")
# The Unicode categories of control, format, private and unassigned characters. Some of these
# characters are invisible, and some reverse the direction of text.
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def contains_contact_details(text: str) -> bool:
    """Return whether a mail program or a reader could take a part of the text for an address.

    Addresses include URLs, domains, e-mail addresses and telephone numbers.
    """
    # Readers don't see format characters, so these characters must not hide an address here.
    visible_text = "".join(
        character for character in _replace_lookalikes(text) if category(character) != "Cf"
    )
    return _contains_address(visible_text) or any(
        map(_is_telephone_number, _LONG_NUMBER.finditer(visible_text))
    )


def quote_text(text: str) -> str:
    """Return the text in quotation marks, with every address replaced by an ellipsis.

    The result is ``“…”`` if nothing else remains.
    """
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
    return f"“{shortened or _ELLIPSIS}”"


def obfuscate_address(address: str) -> str:
    """Return an e-mail address that its acquaintances recognise and no mail program links."""
    local, _, domain = address.rpartition("@")
    obfuscated = f"{local[:1]}… at {' dot '.join(domain.split('.'))}"
    if len(obfuscated) <= MAX_SHOWN_CHARACTERS:
        return obfuscated
    return obfuscated[: MAX_SHOWN_CHARACTERS - 1] + _ELLIPSIS


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
    # Import the list here, because loading takes time and most processes quote no texts.
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(accept_unknown=False)


def _is_telephone_number(match: re.Match[str]) -> bool:
    return _DATE.fullmatch(match[0]) is None
