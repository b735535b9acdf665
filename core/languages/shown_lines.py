"""Lines that people see: names, titles and labels that one person writes and others read.

A line in which nothing is seen is a link that can't be found, and one that turns the direction of
what stands beside it can make a file or an address look like another.
"""

import re
from unicodedata import category

# These join letters in Persian and Indic names, and people in emoji.
JOINERS = "\u200c\u200d"
# With these a full stop or a bracket stands on its right side in Arabic and Hebrew; unlike the
# controls below they turn no letter around.
_DIRECTION_MARKS = "\u200e\u200f\u061c"
_UNSEEN_BUT_NEEDED = frozenset(JOINERS + _DIRECTION_MARKS)
_REMOVED = str.maketrans(dict.fromkeys(_UNSEEN_BUT_NEEDED, ""))
# Control characters, and the characters that end a line in Unicode.
LINE_ENDS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")
# Letters and symbols by their category, which are shown as nothing.
_FILLERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")


def is_shown(text: str) -> bool:
    """Whether the text is one line, in which something is seen and nothing turns its direction."""
    return not LINE_ENDS.search(text) and not _TURNING.search(text) and _has_visible(text)


def is_plain(text: str) -> bool:
    """Whether the text is shown, and has no unseen characters but those that scripts need."""
    return is_shown(text) and all(
        category(each)[0] != "C" or each in _UNSEEN_BUT_NEEDED for each in text
    )


def without_joiners(text: str) -> str:
    """The text as a reader sees it, who does not see what joins its letters."""
    return text.translate(_REMOVED)


def _has_visible(text: str) -> bool:
    return any(category(each)[0] in "LNPS" and each not in _FILLERS for each in text)
