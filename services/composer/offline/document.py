"""A post as sentences of words in a language, from which summaries, tags and tweets are taken."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from services.composer.text.characters import CHINESE, romanise_kana
from services.composer.text.post import PlainPost
from services.composer.text.words import (
    fold_word,
    is_content_word,
    load_stop_words,
    split_sentences,
    split_words,
)

# Japanese words, their kinds and their readings are those of SudachiPy's small dictionary, which
# its authors keep up to date.

NOUN, VERB = "名詞", "動詞"
# The get_tokenizer takes 49,149 bytes at most, and refuses what grows beyond 65,535 in the form
# NFKC; no character grows beyond 33.
_MAX_PIECE_CHARACTERS = 1_000
_AUXILIARY, _PARTICLE, _JOINING = "助動詞", "助詞", "接続助詞"
# How the particles sound that are written as other sounds are.
_PARTICLES = {"は": "わ", "へ": "え", "を": "お"}
# Small kana that stand for words in names: the reading tells which.
_READ_BY_NAME = frozenset("ヶヵ")
_ONE_TOKENIZER_AT_A_TIME = Lock()


class Morpheme(NamedTuple):
    surface: str
    # The form that the dictionary lists.
    lemma: str
    # The part of speech, and which sort of it.
    kind: str
    sort: str
    # In Katakana; for a word that the dictionary lacks the word itself.
    reading: str


def split_morphemes(text: str) -> list[Morpheme]:
    pieces = (
        text[start : start + _MAX_PIECE_CHARACTERS]
        for start in range(0, len(text), _MAX_PIECE_CHARACTERS)
    )
    # Threads can't share a get_tokenizer at the same time.
    with _ONE_TOKENIZER_AT_A_TIME:
        return [_morpheme(found) for piece in pieces for found in _tokenizer().tokenize(piece)]


def spell_japanese(text: str) -> str:
    """The words in Latin letters, set apart; one whose reading isn't known stays as it is."""
    spelled = ""
    for word in split_morphemes(text):
        clings = word.kind == _AUXILIARY or word.sort == _JOINING
        spelled += "" if clings else " "
        if word.kind == _PARTICLE:
            spelled += romanise_kana(_PARTICLES.get(word.surface, word.surface))
        else:
            by_reading = CHINESE.search(word.surface) or word.surface in _READ_BY_NAME
            written = word.reading if by_reading else word.surface
            spelled += romanise_kana(written, verb=word.kind == VERB)
    return spelled


def _morpheme(found: Any) -> Morpheme:
    kind, sort = found.part_of_speech()[:2]
    return Morpheme(found.surface(), found.dictionary_form(), kind, sort, found.reading_form())


@cache
def _tokenizer() -> Any:
    from sudachipy import Dictionary, SplitMode

    return Dictionary(dict="small").tokenizer(SplitMode.B)


# English plurals of which a stemmer doesn't find the singular.
_SINGULARS = dict(
    pair.split("=")
    for pair in Path(__file__).with_name("english_plurals.txt").read_text("ascii").split()
)
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
    # It can stand as a tag by itself.
    noun: bool


Tokenizer = Callable[[str], list[Word]]


def get_tokenizer(language: str) -> Tokenizer:
    if language == "zh":
        return _chinese
    if language == "ja":
        return _japanese
    stop = load_stop_words(language)
    from Stemmer import Stemmer

    # A stemmer for each text: threads can't share one. It knows the codes of its languages.
    stem: Callable[[str], str] = str
    with suppress(KeyError):
        stem = Stemmer(language).stemWord

    @cache
    def word(surface: str) -> Word:
        plain = fold_word(surface).replace("’", "'")
        # The article of `l'eau`, the possessive of `Anna's`.
        head, _, tail = plain.partition("'")
        core = tail if len(tail) > len(head) else head
        about = is_content_word(core, stop) and plain not in stop
        shown = surface[-len(core) :] if core == tail else surface[: len(core)]
        singular = _SINGULARS.get(core, core) if language == "en" else core
        return Word(shown, plain, stem(singular) if about else "", about)

    return lambda text: list(map(word, split_words(text)))


def _chinese(text: str) -> list[Word]:
    from rjieba import tag

    words = []
    for surface, kind in tag(text):
        key = fold_word(surface)
        about = is_content_word(key, load_stop_words("zh"))
        noun = about and kind.startswith(_CHINESE_NOUNS)
        words.append(Word(surface, key, key if about else "", noun))
    return words


def _japanese(text: str) -> list[Word]:
    stop, words = load_stop_words("ja"), []
    for found in split_morphemes(text):
        plain = fold_word(found.surface)
        about = is_content_word(plain, stop)
        noun = about and found.kind == NOUN and found.sort in _JAPANESE_NOUNS
        words.append(Word(found.surface, plain, fold_word(found.lemma) if about else "", noun))
    return words


# As much as a post of 3,000 words has; more text decides nothing more.
_MAX_SAMPLE_CHARACTERS = 20_000
# Statistics of fewer letters are guesses.
_MIN_LETTERS = 24
_SCRIPTS = (
    ("ja", re.compile("[\u3040-\u30ff]"), 0.05),
    ("ko", re.compile("[\uac00-\ud7af]"), 0.3),
    ("zh", re.compile("[\u3400-\u4dbf\u4e00-\u9fff]"), 0.2),
    ("th", re.compile("[\u0e00-\u0e7f]"), 0.3),
    ("el", re.compile("[\u0370-\u03ff]"), 0.3),
    ("he", re.compile("[\u0590-\u05ff]"), 0.3),
    ("hy", re.compile("[\u0530-\u058f]"), 0.3),
    ("ka", re.compile("[\u10a0-\u10ff]"), 0.3),
)
_CYRILLIC = re.compile("[\u0400-\u04ff]")
_LETTER = re.compile(r"[^\W\d_]")
_MAX_SCRIPT_SAMPLE_CHARACTERS = 4_000
_ONE_AT_A_TIME = Lock()


def detect_language(plain: PlainPost) -> str:
    """Return an ISO 639-1 code: by script where that decides, else by statistics; else `en`."""
    text = "\n".join((*plain.paragraphs, *plain.headings, plain.title))[:_MAX_SAMPLE_CHARACTERS]
    looked_at = text[:_MAX_SCRIPT_SAMPLE_CHARACTERS]
    letters = len(_LETTER.findall(looked_at))
    for language, script, share in _SCRIPTS:
        if letters and len(script.findall(looked_at)) / letters >= share:
            return language
    if letters < _MIN_LETTERS:
        return "ru" if _CYRILLIC.search(looked_at) else "en"
    # Its model takes 100 MB, for a worker that writes. Two threads would load it twice.
    with _ONE_AT_A_TIME:
        from py3langid import classify

        return str(classify(text)[0])


# The beginning of a long post is read whole, and the rest at even steps.
_MAX_DOCUMENT_CHARACTERS = 120_000
_MAX_PARAGRAPH_CHARACTERS = 20_000
_MAX_SENTENCES = 300
_FIRST_SENTENCES = 60
Item = TypeVar("Item")

_BULLET = re.compile(r"[•‣◦▪●■►–—-]\s")
_ANNOUNCES = re.compile(r"[:：]$")
_ENDS_WHOLE = re.compile(r"[.!?…。！？।؟۔։።]['\"”’»)\]）」』]*$")


@dataclass(frozen=True, slots=True)
class Sentence:
    text: str
    words: tuple[Word, ...]
    # It begins its paragraph.
    opens: bool
    # It ends as a sentence does, and shows no URL.
    whole: bool
    # It is an item of a list, or announces one: it says little without the others.
    listed: bool

    def keys(self) -> set[str]:
        return {word.key for word in self.words if word.key}


@dataclass(frozen=True, slots=True)
class Document:
    language: str
    title: tuple[Word, ...]
    headings: tuple[tuple[Word, ...], ...]
    sentences: tuple[Sentence, ...]


def parse_document(plain: PlainPost) -> Document:
    language = detect_language(plain)
    tokenize = get_tokenizer(language)
    paragraphs = [(i, text[:_MAX_PARAGRAPH_CHARACTERS]) for i, text in enumerate(plain.paragraphs)]
    total = sum(len(text) for _, text in paragraphs)
    if total > _MAX_DOCUMENT_CHARACTERS:
        room = max(1, len(paragraphs) * _MAX_DOCUMENT_CHARACTERS // total)
        paragraphs = _fairly(paragraphs, room, min(room // 4, _FIRST_SENTENCES))
    found = [
        (text, number, index == 0)
        for number, paragraph in paragraphs
        for index, text in enumerate(split_sentences(paragraph, language))
    ]
    kept = [
        Sentence(
            text,
            tuple(tokenize(text)),
            opens,
            whole=bool(_ENDS_WHOLE.search(text[-4:])) and "://" not in text,
            listed=paragraph in plain.listed
            or bool(_BULLET.match(text) or _ANNOUNCES.search(text)),
        )
        for text, paragraph, opens in _fairly(found, _MAX_SENTENCES, _FIRST_SENTENCES)
    ]
    return Document(
        language=language,
        title=tuple(tokenize(plain.title)),
        headings=tuple(tuple(tokenize(text[:500])) for text in plain.headings[:_MAX_SENTENCES]),
        sentences=tuple(kept),
    )


def _fairly(items: list[Item], max_items: int, first: int) -> list[Item]:
    """The first items, and of the others as many at even steps as there is room for."""
    if len(items) <= max_items:
        return items
    rest, room = items[first:], max_items - first
    return items[:first] + [rest[i * len(rest) // room] for i in range(room)]
