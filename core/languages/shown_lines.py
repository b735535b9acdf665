"""Validates and normalizes one-line texts that people see, such as names, titles and labels.

A name without visible characters would make an invisible link. A character that reverses the text
direction can disguise a file name or an address.
"""

import re
from unicodedata import category, normalize

# Joiners are invisible characters that connect the parts of an emoji, or letters in Persian and
# Indic scripts.
JOINERS = "\u200c\u200d"
# Direction marks place punctuation correctly in Arabic and Hebrew. Unlike direction controls,
# direction marks don't reverse letters.
_DIRECTION_MARKS = "\u200e\u200f\u061c"
_NEEDED_INVISIBLE = frozenset(JOINERS + _DIRECTION_MARKS)
# Matches a control character, or a character that ends a line in Unicode.
LINE_ENDS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_DIRECTION_CONTROLS = re.compile("[\u202a-\u202e\u2066-\u2069]")
_ANY_DIRECTION = re.compile(f"{_DIRECTION_CONTROLS.pattern}|[{_DIRECTION_MARKS}]")
# Unicode classifies filler characters as letters or symbols, but fonts display a filler as a blank.
_FILLERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
# The first and last code points of ranges of control characters, whitespace and invisible format
# characters.
_INVISIBLE_RANGES = (
    *((0x0, 0x20), (0x7F, 0xA0), (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x1680, 0x1680)),
    *((0x180B, 0x180F), (0x2000, 0x200F), (0x2028, 0x202F), (0x205F, 0x206F), (0x3000, 0x3000)),
    *((0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB), (0xE0000, 0xE007F)),
)
_INVISIBLE = "".join(
    (
        *(chr(point) for first, last in _INVISIBLE_RANGES for point in range(first, last + 1)),
        *_FILLERS,
    )
)
_ANY_INVISIBLE = re.compile(f"[{re.escape(_INVISIBLE)}]")
# The invisible characters that people type or paste by accident. The only control characters in
# ``_STRIPPED`` are whitespace and Ctrl+Z, which ends a file in DOS.
_STRIPPED = "".join(
    character
    for character in _INVISIBLE
    if category(character) != "Cc" or character.isspace() or character == "\x1a"
)

# Maps letters to the plain Latin letters that they resemble. After Cyrillic and Greek letters, the
# table contains unusual Latin letters, which NFKC normalization doesn't replace.
_LOOK_ALIKES = str.maketrans(
    "авекмнорстухіјѕһԁԛԝ" "αβεηικνορτυχγω" "ıɑɡɪʀɴʟøłđᴀʙᴄᴅᴇɢʜᴊᴋᴍᴏᴘꜱᴛᴜᴠᴡᴢ",
    "abekmhopctyxijshdqw" "abenikvoptuxyw" "iagirnloldabcdeghjkmopstuvwz",
)  # fmt: skip
# Maps each digit or symbol to the letter that it replaces in disguised words.
_LETTER_SUBSTITUTES = str.maketrans("0345789@$€|", "oeastbgasei")
_WORD = re.compile(r"[^\W_]+")
_HAS_LETTER = re.compile(r"[^\W\d_]")
_SINGLE_LETTERS = re.compile(r"\b\w(?: \w\b)+")
# The Unicode categories of combining marks, variation selectors and format characters.
_DROPPED_CATEGORIES = frozenset({"Mn", "Me", "Cf"})


def is_shown(text: str) -> bool:
    if LINE_ENDS.search(text) or _DIRECTION_CONTROLS.search(text):
        return False
    return any(category(character)[0] in "LNPS" and character not in _FILLERS for character in text)


def has_direction(text: str) -> bool:
    return _ANY_DIRECTION.search(text) is not None


def is_plain(text: str) -> bool:
    """Return whether the text is a single line that isn't blank and contains no control characters.

    Joiners and direction marks are allowed, because some scripts need these invisible characters.
    """
    return is_shown(text) and all(
        category(character)[0] != "C" or character in _NEEDED_INVISIBLE for character in text
    )


def strip_invisible(text: str) -> str:
    return text.strip(_STRIPPED)


def has_invisible(text: str) -> bool:
    return _ANY_INVISIBLE.search(text) is not None


def fold_case(text: str) -> str:
    return normalize("NFC", normalize("NFC", text).casefold())


def fold_look_alikes(text: str) -> str:
    """Convert a text to lower-case ASCII letters where possible, to compare it with known words."""
    decomposed = normalize("NFD", normalize("NFKC", text).casefold())
    letters = (each for each in decomposed if category(each) not in _DROPPED_CATEGORIES)
    return "".join(letters).translate(_LOOK_ALIKES)


def fold_words(text: str) -> tuple[str, str]:
    """Return two possible plain texts behind a disguised text, with single spaces between words.

    The digit 1 resembles two letters, so the function returns a text with ``i`` and a text with
    ``l``. Consecutive single letters, such as ``f r e e``, are joined into one word.
    """
    return _read_words(text, "i"), _read_words(text, "l")


def _read_words(text: str, letter_for_1: str) -> str:
    substitutes = {**_LETTER_SUBSTITUTES, ord("1"): ord(letter_for_1)}
    parts = (
        part.translate(substitutes) if _HAS_LETTER.search(part) else part
        for part in fold_look_alikes(text).split()
    )
    words = " ".join(_WORD.findall(" ".join(parts)))
    return _SINGLE_LETTERS.sub(lambda match: match[0].replace(" ", ""), words)
