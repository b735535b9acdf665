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
_UNSPACED = re.compile(f"[{UNSPACED}]")
_MIN_LETTERS = 3
_MIN_UNSPACED_LETTERS = 2
# In the list of stop words of English, which is long, and yet what posts are about.
_ABOUT_SOMETHING = frozenset(
    "area beginning book case face fact group health hello help home information interest keep "
    "member million number page part place point problem program research result room section "
    "side state system test thing tip today web welcome work world year".split()
)


def fold_word(text: str) -> str:
    """The form in which two texts are the same: whatever their case, width and marks' order."""
    return unicodedata.normalize("NFKC", text).casefold()


def words_of(text: str) -> list[str]:
    return _word().findall(text)


def content_words(plain: PlainPost, enough: int) -> set[str]:
    """Different words that are about something; no more are looked for once there are enough."""
    found: set[str] = set()
    for text in (plain.title, *plain.paragraphs, *plain.headings):
        for word in words_of(text):
            if is_content(fold_word(word), all_stop_words()):
                found.add(fold_word(word))
                if len(found) >= enough:
                    return found
    return found


def is_content(word: str, stop_words: frozenset[str]) -> bool:
    """Of a folded word: it begins with a letter, is no mere syllable, and no stop word."""
    if not word[:1].isalpha() or word in stop_words:
        return False
    if len(word) >= _MIN_LETTERS:
        return True
    return len(word) >= _MIN_UNSPACED_LETTERS and bool(_UNSPACED.match(word))


@cache
def stop_words(language: str) -> frozenset[str]:
    """Folded; none for a language without a list."""
    from stopwordsiso import has_lang, stopwords

    words = frozenset(map(fold_word, stopwords(language))) if has_lang(language) else frozenset()
    return words - _ABOUT_SOMETHING if language == "en" else words


@cache
def all_stop_words() -> frozenset[str]:
    from stopwordsiso import langs

    return frozenset().union(*map(stop_words, langs()))


@cache
def _word() -> re.Pattern[str]:
    """Letters and digits with the marks on them, and what joins two halves of a word."""
    marks = "".join(map(chr, (code for code in range(0x300, 0x1_0000) if _is_mark(chr(code)))))
    return re.compile(rf"[^\W_](?:[^\W_]|[{marks}]|['’·\u200c\u200d-](?=[^\W_]))*")


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) in {"Mn", "Mc"}
