"""Lines that people see: names, titles and labels that one person writes and others read.

A line in which nothing is seen is a link that can't be found, and one that turns the direction of
what stands beside it can make a file or an address look like another.
"""

import re
from unicodedata import category, normalize

# These join letters in Persian and Indic names, and people in emoji.
JOINERS = "\u200c\u200d"
# With these a full stop or a bracket stands on its right side in Arabic and Hebrew; unlike the
# controls below they turn no letter around.
_DIRECTION_MARKS = "\u200e\u200f\u061c"
_UNSEEN_BUT_NEEDED = frozenset(JOINERS + _DIRECTION_MARKS)
# Control characters, and the characters that end a line in Unicode.
LINE_ENDS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")
_ANY_DIRECTION = re.compile(f"{_TURNING.pattern}|[{_DIRECTION_MARKS}]")
# Letters and symbols by their category, which are shown as nothing.
_FILLERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
# The first and the last character of each range of control characters, whitespace and invisible
# format characters.
_UNSEEN_RANGES = (
    *((0x0, 0x20), (0x7F, 0xA0), (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x1680, 0x1680)),
    *((0x180B, 0x180F), (0x2000, 0x200F), (0x2028, 0x202F), (0x205F, 0x206F), (0x3000, 0x3000)),
    *((0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB), (0xE0000, 0xE007F)),
)
_UNSEEN = "".join(
    (
        *(chr(point) for first, last in _UNSEEN_RANGES for point in range(first, last + 1)),
        *_FILLERS,
    )
)
_ANY_UNSEEN = re.compile(f"[{re.escape(_UNSEEN)}]")
# The invisible characters that people accidentally add around a text when they type or copy it.
# Most control characters are not included. The exceptions are whitespace and Ctrl+Z, the
# end-of-file character of DOS.
_STRIPPED = "".join(
    each for each in _UNSEEN if category(each) != "Cc" or each.isspace() or each == "\x1a"
)


def is_shown(text: str) -> bool:
    """Return whether the text is one line, in which something is seen and nothing turns its
    direction.
    """
    if LINE_ENDS.search(text) or _TURNING.search(text):
        return False
    return any(category(each)[0] in "LNPS" and each not in _FILLERS for each in text)


def has_direction(text: str) -> bool:
    """Return whether the text has a mark or control of its direction."""
    return _ANY_DIRECTION.search(text) is not None


def is_plain(text: str) -> bool:
    """Return whether the text is shown, and has no unseen characters but those that scripts
    need.
    """
    return is_shown(text) and all(
        category(each)[0] != "C" or each in _UNSEEN_BUT_NEEDED for each in text
    )


def strip_unseen(text: str) -> str:
    """Remove whitespace and invisible characters from both ends of the text."""
    return text.strip(_STRIPPED)


def has_unseen(text: str) -> bool:
    """Return whether the text contains whitespace or an invisible character."""
    return _ANY_UNSEEN.search(text) is not None


def caseless(text: str) -> str:
    """Return a form of the text for comparisons that ignore case and Unicode composition."""
    return normalize("NFC", normalize("NFC", text).casefold())


# Letters of other scripts that look like a Latin one, and Latin ones that NFKC keeps.
_LETTERS = str.maketrans(
    "авекмнорстухіјѕһԁԛԝ" "αβεηικνορτυχγω" "ıɑɡɪʀɴʟøłđᴀʙᴄᴅᴇɢʜᴊᴋᴍᴏᴘꜱᴛᴜᴠᴡᴢ",
    "abekmhopctyxijshdqw" "abenikvoptuxyw" "iagirnloldabcdeghjkmopstuvwz",
)  # fmt: skip
_SIGNS = str.maketrans("0345789@$€|", "oeastbgasei")
_WORD = re.compile(r"[^\W_]+")
_HAS_LETTER = re.compile(r"[^\W\d_]")
_LONE_LETTERS = re.compile(r"\b\w(?: \w\b)+")
# Combining marks and variation selectors, and format characters.
_DROPPED = frozenset({"Mn", "Me", "Cf"})


def folded(text: str) -> str:
    """Return the text in lower case, without accents, unseen characters and look-alikes.

    It is for comparisons with words in plain ASCII, and is shown to nobody.
    """
    split = normalize("NFD", normalize("NFKC", text).casefold())
    return "".join(each for each in split if category(each) not in _DROPPED).translate(_LETTERS)


def folded_words(text: str) -> tuple[str, str]:
    """Return the text's words, folded, with one space between two.

    Digits and signs within a word count as the letters for which they stand in; 1 stands for two,
    so there are two results. Letters that stand alone, one after another, are one word.
    """
    return _words(text, "i"), _words(text, "l")


def _words(text: str, one: str) -> str:
    signs = {**_SIGNS, ord("1"): ord(one)}
    parts = (
        part.translate(signs) if _HAS_LETTER.search(part) else part for part in folded(text).split()
    )
    words = " ".join(_WORD.findall(" ".join(parts)))
    return _LONE_LETTERS.sub(lambda found: found[0].replace(" ", ""), words)
