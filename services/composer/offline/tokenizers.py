"""Splits sentences into words, each with a key that all its forms share."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from services.composer.offline.japanese import NOUN, morphemes_of
from services.composer.text.words import fold_word, is_content, stop_words, words_of


def _pairs(file_name: str) -> dict[str, str]:
    text = Path(__file__).with_name(file_name).read_text("ascii")
    return dict(pair.split("=") for pair in text.split())


# Languages with a stemmer, by their codes.
_STEMMERS = _pairs("stemmers.txt")
# English plurals of which a stemmer doesn't find the singular.
_SINGULARS = _pairs("english_plurals.txt")
# Tags of Chinese words that carry content.
_CHINESE_NOUNS = ("n", "vn", "eng", "an", "j", "l", "i")
# Kinds of Japanese nouns that name something: no numbers, no auxiliaries.
_JAPANESE_NOUNS = frozenset({"普通名詞", "固有名詞"})


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
        singular = _SINGULARS.get(core, core) if language == "en" else core
        return Word(shown, plain, stem(singular) if about else "", about)

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
    stop, words = stop_words("ja"), []
    for found in morphemes_of(text):
        plain = fold_word(found.surface)
        about = is_content(plain, stop)
        noun = about and found.kind == NOUN and found.sort in _JAPANESE_NOUNS
        words.append(Word(found.surface, plain, fold_word(found.lemma) if about else "", noun))
    return words
