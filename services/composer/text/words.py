"""Splits texts in any script into words and sentences, and finds the content words of a post."""

import re
import unicodedata
from functools import cache
from pathlib import Path

from services.composer.text.post import PlainPost

# The characters of scripts without spaces between words.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003134f"
)
_UNSPACED_CHARACTER = re.compile(f"[{UNSPACED}]")
_MIN_LETTERS = 3
_MIN_UNSPACED_LETTERS = 2
# For some languages, the sentence splitter takes a quarter of a millisecond per punctuation mark
# that can end a sentence. A text with very many sentence marks isn't prose, so the text is split by
# the faster English rules.
_SENTENCE_ENDS = ".!?。"
_MAX_SENTENCE_ENDS = 50
_CHARACTERS_PER_SENTENCE_END = 10
_FAST_LANGUAGE = "en"
# English stop words that nevertheless count as content words.
_ENGLISH_CONTENT_WORDS = frozenset(
    Path(__file__).with_name("about_something.txt").read_text("ascii").split()
)


def fold_word(text: str) -> str:
    """Normalise a word, so that comparisons ignore case and letter width."""
    return unicodedata.normalize("NFKC", text).casefold()


def split_words(text: str) -> list[str]:
    return _compile_word_pattern().findall(text)


def find_content_words(plain: PlainPost, max_words: int) -> set[str]:
    words: set[str] = set()
    for text in (plain.title, *plain.paragraphs, *plain.headings):
        for word in split_words(text):
            if is_content_word(fold_word(word), load_all_stop_words()):
                words.add(fold_word(word))
                if len(words) >= max_words:
                    return words
    return words


def is_content_word(word: str, stop_words: frozenset[str]) -> bool:
    """Exclude numbers, very short words and stop words."""
    if not word[:1].isalpha() or word in stop_words:
        return False
    if len(word) >= _MIN_LETTERS:
        return True
    return len(word) >= _MIN_UNSPACED_LETTERS and bool(_UNSPACED_CHARACTER.match(word))


@cache
def load_stop_words(language: str) -> frozenset[str]:
    """Return the normalised stop words, or an empty set for an unknown language."""
    from stopwordsiso import has_lang, stopwords

    words = frozenset(map(fold_word, stopwords(language))) if has_lang(language) else frozenset()
    return words - _ENGLISH_CONTENT_WORDS if language == "en" else words


@cache
def load_all_stop_words() -> frozenset[str]:
    from stopwordsiso import langs

    return frozenset().union(*map(load_stop_words, langs()))


@cache
def _compile_word_pattern() -> re.Pattern[str]:
    characters = map(chr, range(0x300, 0x1_0000))
    marks = "".join(
        character for character in characters if unicodedata.category(character) in {"Mn", "Mc"}
    )
    return re.compile(rf"[^\W_](?:[^\W_]|[{marks}]|['’·\u200c\u200d-](?=[^\W_]))*")


def split_sentences(text: str, language: str) -> list[str]:
    # Import the sentence splitter only if it is needed, because most workers don't install
    # `pressroom[languages]`.
    from sentencex import segment

    max_ends = _MAX_SENTENCE_ENDS + len(text) // _CHARACTERS_PER_SENTENCE_END
    if sum(map(text.count, _SENTENCE_ENDS)) > max_ends:
        language = _FAST_LANGUAGE
    return [stripped for sentence in segment(language, text) if (stripped := sentence.strip())]


def take_whole_sentences(text: str, max_characters: int) -> str:
    end = 0
    for sentence in split_sentences(text[: 2 * max_characters + 1], "en"):
        start = text.index(sentence, end)
        if start + len(sentence) > max_characters:
            break
        end = start + len(sentence)
    return text[:end]
