"""Words in any script, and which of them carry a post's content."""

import re
import unicodedata
from functools import cache

from services.composer.post import PlainPost

# Scripts that put no space between words.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003134f"
)
_WORD = re.compile(r"[^\W_]+(?:[\u0300-\u036f\u200c\u200d'’·-]*[^\W_]+)*")
_UNSPACED_RUN = re.compile(f"[{UNSPACED}]{{2,}}")
_LEAST_LETTERS = 3


def folded(text: str) -> str:
    """The form in which two texts are the same: whatever their case, width and marks' order."""
    return unicodedata.normalize("NFKC", text).casefold()


def words_of(text: str) -> list[str]:
    return _WORD.findall(text)


def content_words(plain: PlainPost, enough: int) -> set[str]:
    """Different words that are about something; no more are looked for once there are enough."""
    found: set[str] = set()
    for text in (plain.title, *plain.paragraphs, *plain.headings):
        for word in words_of(text):
            if is_content(folded(word)):
                found.add(folded(word))
                if len(found) >= enough:
                    return found
    return found


def is_content(word: str) -> bool:
    """Of a folded word: letters, more than a syllable, and in no list of stop words."""
    if not word[0].isalpha() or word in all_stop_words():
        return False
    return len(word) >= _LEAST_LETTERS or bool(_UNSPACED_RUN.search(word))


@cache
def all_stop_words() -> frozenset[str]:
    return frozenset()
