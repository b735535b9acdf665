"""Words of strangers as a mail may show them: short, quoted, and leading nowhere.

Mail programs make links of all that looks like an address, and of numbers that can be called. So a
title could ask its reader to do something elsewhere, in a mail that comes from us.
"""

import re
from unicodedata import category, normalize

MAX_SHOWN_CHARACTERS = 60
_LEFT_OUT = "…"
# Full stops of other scripts, which browsers take for one in a domain's name.
_FULL_STOPS = str.maketrans("\u3002\uff61\u2024\u2027", "....")
# Closing one of these would end the quotation.
_QUOTES = str.maketrans(dict.fromkeys('"“”„‟«»\u2039\u203a\u301d\u301e\uff02', "'"))
# A word that a mail program, or its reader, could take for somewhere to go: a URL, an e-mail
# address, a domain (a dot between two letters or digits, the last label of two letters or more), an
# IP address, or a number of seven digits or more.
_LEADS_AWAY = re.compile(
    r"//|@|\\|\bwww\b|\bmailto\b|[^\W_]\.(?:[^\W_-][\w-]*\.)*[^\W\d_]{2}|xn--"
    r"|\d+\.\d+\.\d+",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\+?\d(?:[\s().\-/]{0,3}\d){6,}")
_BLANKS = re.compile(r"\s+")
_LEFT_OUTS = re.compile(rf"{_LEFT_OUT}(?: ?{_LEFT_OUT})+")
# Format and control characters, private and unassigned ones: among them those that turn the
# direction of a text around, and those that are not seen at all.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def leads_away(text: str) -> bool:
    """Whether a mail program, or its reader, could take a part of the text for somewhere to go."""
    plain = _plain(text)
    return bool(_LEADS_AWAY.search(plain) or _NUMBER.search(plain))


def _plain(text: str) -> str:
    return normalize("NFKC", text.translate(_FULL_STOPS)).translate(_FULL_STOPS)


def quoted(text: str) -> str:
    """The text in quotation marks, as harmless as it can be; ``“…”`` when nothing of it is left."""
    plain = _plain(text)
    spaced = _BLANKS.sub(" ", plain)
    seen = "".join(each for each in spaced if category(each) not in _UNSEEN)
    words = seen.translate(_QUOTES).split()
    kept = " ".join(_LEFT_OUT if _LEADS_AWAY.search(word) else word for word in words)
    shown = _LEFT_OUTS.sub(_LEFT_OUT, _NUMBER.sub(_LEFT_OUT, kept))
    if len(shown) > MAX_SHOWN_CHARACTERS:
        shown = shown[: MAX_SHOWN_CHARACTERS - 1].rstrip(f" {_LEFT_OUT}") + _LEFT_OUT
    return f"“{shown or _LEFT_OUT}”"


def masked_address(address: str) -> str:
    """Enough of an address for those who know it, and written so that no program makes a link."""
    local, _, domain = address.rpartition("@")
    shown = f"{local[:1]}… at {' dot '.join(domain.split('.'))}"
    return shown if len(shown) <= MAX_SHOWN_CHARACTERS else shown[: MAX_SHOWN_CHARACTERS - 1] + "…"
