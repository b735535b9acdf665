"""Words and sentences in any script, and which words carry a post's content."""

import re
import unicodedata
from functools import cache
from pathlib import Path

from services.composer.text.post import PlainPost

# Scripts that put no space between words.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003134f"
)
_UNSPACED = re.compile(f"[{UNSPACED}]")
_MIN_LETTERS = 3
_MIN_UNSPACED_LETTERS = 2
# English stop words of the list, which is long, that posts are often about.
_ABOUT_SOMETHING = frozenset(
    Path(__file__).with_name("about_something.txt").read_text("ascii").split()
)


def fold_word(text: str) -> str:
    """The form in which words are compared: case, width and the order of marks don't count."""
    return unicodedata.normalize("NFKC", text).casefold()


def split_words(text: str) -> list[str]:
    return _word().findall(text)


def find_content_words(plain: PlainPost, enough: int) -> set[str]:
    """Different words that carry content; the search ends once there are enough."""
    found: set[str] = set()
    for text in (plain.title, *plain.paragraphs, *plain.headings):
        for word in split_words(text):
            if is_content_word(fold_word(word), load_all_stop_words()):
                found.add(fold_word(word))
                if len(found) >= enough:
                    return found
    return found


def is_content_word(word: str, stop_words: frozenset[str]) -> bool:
    """Return whether a folded word carries content: no number, syllable or stop word does."""
    if not word[:1].isalpha() or word in stop_words:
        return False
    if len(word) >= _MIN_LETTERS:
        return True
    return len(word) >= _MIN_UNSPACED_LETTERS and bool(_UNSPACED.match(word))


@cache
def load_stop_words(language: str) -> frozenset[str]:
    """Folded words; none for a language without a list."""
    from stopwordsiso import has_lang, stopwords

    words = frozenset(map(fold_word, stopwords(language))) if has_lang(language) else frozenset()
    return words - _ABOUT_SOMETHING if language == "en" else words


@cache
def load_all_stop_words() -> frozenset[str]:
    from stopwordsiso import langs

    return frozenset().union(*map(load_stop_words, langs()))


@cache
def _word() -> re.Pattern[str]:
    """Letters and digits with the marks on them, and the signs that join two halves of a word."""
    characters = map(chr, range(0x300, 0x1_0000))
    marks = "".join(each for each in characters if unicodedata.category(each) in {"Mn", "Mc"})
    return re.compile(rf"[^\W_](?:[^\W_]|[{marks}]|['’·\u200c\u200d-](?=[^\W_]))*")


# In Catalan, Danish and Occitan, the library that splits sentences takes a quarter of a millisecond
# per character that can end a sentence. A text that is full of such characters has no real
# sentences. The faster rules for English are good enough for such a text.
_ENDS = ".!?。"
_MAX_ENDS = 50
_CHARACTERS_AN_END = 10
_FAST_LANGUAGE = "en"


def split_sentences(text: str, language: str) -> list[str]:
    """Split the text into sentences, without the whitespace around them."""
    # Workers of other queues have no rules of languages (`pressroom[languages]`).
    from sentencex import segment

    if sum(map(text.count, _ENDS)) > _MAX_ENDS + len(text) // _CHARACTERS_AN_END:
        language = _FAST_LANGUAGE
    return [stripped for found in segment(language, text) if (stripped := found.strip())]


def take_whole_sentences(text: str, max_characters: int) -> str:
    """The first sentences that fit into so many characters; empty if not even one does."""
    end = 0
    for sentence in split_sentences(text[: 2 * max_characters + 1], "en"):
        start = text.index(sentence, end)
        if start + len(sentence) > max_characters:
            break
        end = start + len(sentence)
    return text[:end]
