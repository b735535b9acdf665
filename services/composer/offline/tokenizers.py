"""Splits sentences into words, each with a key that all its forms share."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from services.composer.text.words import UNSPACED, fold_word, is_content, stop_words, words_of

# Languages with a stemmer, by their codes.
_STEMMERS = dict(
    line.split("=") for line in Path(__file__).with_name("stemmers.txt").read_text("ascii").split()
)
# Tags of Chinese words that carry content.
_CHINESE_NOUNS = ("n", "vn", "eng", "an", "j", "l", "i")
_SCRIPT_RUN = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff々]+|[\u30a0-\u30ffー]+|[\u3041-\u3096]+"
    f"|(?:(?![{UNSPACED}])[^\\W_])+|[{UNSPACED}]+"
)
_HIRAGANA = re.compile("[\u3041-\u3096]+")


class Word(NamedTuple):
    surface: str
    # The form in which words are compared.
    plain: str
    # The same for all forms of a word; empty for a word without content.
    key: str
    # Whether it can stand as a tag by itself.
    noun: bool


Tokenizer = Callable[[str], list[Word]]


def tokenizer(language: str) -> Tokenizer:
    if language == "zh":
        return _chinese
    if language == "ja":
        return _japanese
    stop = stop_words(language)
    from Stemmer import Stemmer, algorithms

    name = _STEMMERS.get(language)
    # A stemmer for each text: threads can't share one.
    stem: Callable[[str], str] = Stemmer(name).stemWord if name in algorithms() else str

    @cache
    def word(surface: str) -> Word:
        plain = fold_word(surface).replace("’", "'")
        # The article of `l'eau`, the possessive of `Anna's`.
        head, _, tail = plain.partition("'")
        core = tail if len(tail) > len(head) else head
        about = is_content(core, stop) and plain not in stop
        shown = surface[-len(core) :] if core == tail else surface[: len(core)]
        return Word(shown, plain, stem(core) if about else "", about)

    return lambda text: list(map(word, words_of(text)))


def _chinese(text: str) -> list[Word]:
    from rjieba import tag

    words = []
    for surface, kind in tag(text):
        key = fold_word(surface)
        about = is_content(key, stop_words("zh"))
        noun = about and kind.startswith(_CHINESE_NOUNS)
        words.append(Word(surface, key, key if about else "", noun))
    return words


def _japanese(text: str) -> list[Word]:
    tagger, stop, words = _japanese_tagger(), stop_words("ja"), []
    if tagger is None:
        # Runs of Chinese characters and of Katakana are words, and Hiragana joins them.
        for surface in _SCRIPT_RUN.findall(text):
            key = fold_word(surface)
            about = is_content(key, stop) and not _HIRAGANA.fullmatch(surface)
            words.append(Word(surface, key, key if about else "", about))
        return words
    for found in tagger(text):
        surface, key = str(found.surface), fold_word(str(found.feature.lemma or found.surface))
        noun = found.feature.pos1 == "名詞" and found.feature.pos2 in {"普通名詞", "固有名詞"}
        about = is_content(fold_word(surface), stop)
        words.append(Word(surface, fold_word(surface), key if about else "", about and noun))
    return words


def japanese_readings(text: str) -> str:
    """The text's words in Katakana, set apart; empty without the extra `japanese`."""
    tagger = _japanese_tagger()
    if tagger is None:
        return ""
    return " ".join(str(word.feature.kana or word.surface) for word in tagger(text))


@cache
def _japanese_tagger() -> Any:
    """None without the extra `japanese`."""
    try:
        from fugashi import Tagger
    except ImportError:
        return None
    return Tagger()
