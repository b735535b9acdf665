"""Detects the language of a post, and splits the post into sentences and words.

SudachiPy's small dictionary provides the parts of speech and the readings of Japanese words.
"""

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

Item = TypeVar("Item")

# SudachiPy's names for parts of speech.
_NOUN = "名詞"
_VERB = "動詞"
_AUXILIARY = "助動詞"
_PARTICLE = "助詞"
_CONJUNCTIVE_PARTICLE = "接続助詞"
# The kinds of Japanese nouns that can be tags. Numbers and purely grammatical nouns can't be tags.
_JAPANESE_NOUN_KINDS = frozenset({"普通名詞", "固有名詞"})
# The parts of speech of Chinese words that can be tags.
_CHINESE_NOUN_TAGS = ("n", "vn", "eng", "an", "j", "l", "i")
# The pronunciation of Japanese particles, which differs from their spelling.
_PARTICLE_SOUNDS = {"は": "わ", "へ": "え", "を": "お"}
# Small kana that are pronounced differently in different Japanese names.
_READ_BY_NAME = frozenset("ヶヵ")
# The Japanese tokenizer rejects texts of more than 49,149 bytes, or more than 65,535 bytes in
# Unicode NFKC. In NFKC, a single character becomes at most 33 bytes.
_MAX_PIECE_CHARACTERS = 1_000
# Maps English plurals that the stemmer gets wrong to their singulars.
_SINGULARS = dict(
    pair.split("=")
    for pair in Path(__file__).with_name("english_plurals.txt").read_text("ascii").split()
)
# The language is detected from at most this many characters, which are enough for 3,000 words.
_MAX_SAMPLE_CHARACTERS = 20_000
_MAX_SCRIPT_SAMPLE_CHARACTERS = 4_000
# The language detector is reliable only for texts with at least this many letters.
_MIN_LETTERS = 24
# The languages that can be identified by their script. For each language, ``_SCRIPTS`` contains the
# minimum share of a text's letters that must belong to the language's script.
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
# If a post exceeds this limit, the offline writer reads its first paragraphs and skips some of the
# others at regular intervals.
_MAX_DOCUMENT_CHARACTERS = 120_000
_MAX_PARAGRAPH_CHARACTERS = 20_000
_MAX_SENTENCES = 300
_MAX_FIRST_SENTENCES = 60
_BULLET = re.compile(r"[•‣◦▪●■►-]\s")
# A dash begins a list item, a line of dialogue, or the name of the person who is quoted.
_DASH = re.compile(r"[–—―]\s")
_ANNOUNCING_END = re.compile(r"[:：]$")
_COMPLETE_END = re.compile(r"[.!?…。！？।؟۔։።]['\"”’»)\]）」』]*$")
# Only one thread at a time may use the Japanese tokenizer.
_JAPANESE_LOCK = Lock()
# Only one thread may load the language detector's model.
_DETECTOR_LOCK = Lock()


class Morpheme(NamedTuple):
    """``reading`` is the pronunciation in Katakana, or ``surface`` if it is unknown."""

    surface: str
    lemma: str
    kind: str
    sort: str
    reading: str


def split_morphemes(text: str) -> list[Morpheme]:
    pieces = (
        text[start : start + _MAX_PIECE_CHARACTERS]
        for start in range(0, len(text), _MAX_PIECE_CHARACTERS)
    )
    with _JAPANESE_LOCK:
        tokenizer = _load_japanese_tokenizer()
        return [_convert_token(token) for piece in pieces for token in tokenizer.tokenize(piece)]


def spell_japanese(text: str) -> str:
    """Romanise a text, with spaces between words. Words without a known reading don't change."""
    spelled = ""
    for word in split_morphemes(text):
        is_attached = word.kind == _AUXILIARY or word.sort == _CONJUNCTIVE_PARTICLE
        spelled += "" if is_attached else " "
        if word.kind == _PARTICLE:
            spelled += romanise_kana(_PARTICLE_SOUNDS.get(word.surface, word.surface))
        else:
            has_own_reading = CHINESE.search(word.surface) or word.surface in _READ_BY_NAME
            written = word.reading if has_own_reading else word.surface
            spelled += romanise_kana(written, verb=word.kind == _VERB)
    return spelled


def _convert_token(token: Any) -> Morpheme:
    kind, sort = token.part_of_speech()[:2]
    return Morpheme(token.surface(), token.dictionary_form(), kind, sort, token.reading_form())


@cache
def _load_japanese_tokenizer() -> Any:
    from sudachipy import Dictionary, SplitMode

    return Dictionary(dict="small").tokenizer(SplitMode.B)


class Word(NamedTuple):
    """A word in a sentence of a post.

    Attributes:
        plain: the normalised word, for comparisons.
        key: the word's stem. The key of a word that is not a content word is empty.
        is_noun: whether the word is a noun. Only nouns can be tags. If the language's tokenizer
            can't detect nouns, every content word counts as a noun.
    """

    surface: str
    plain: str
    key: str
    is_noun: bool


Tokenizer = Callable[[str], list[Word]]


def get_tokenizer(language: str) -> Tokenizer:
    """Each thread needs its own tokenizer, because threads can't share a stemmer."""
    if language == "zh":
        return _tokenize_chinese
    if language == "ja":
        return _tokenize_japanese
    stop_words = load_stop_words(language)
    from Stemmer import Stemmer

    # ``stem`` returns words unchanged if the language has no stemmer.
    stem: Callable[[str], str] = str
    with suppress(KeyError):
        stem = Stemmer(language).stemWord

    @cache
    def build_word(surface: str) -> Word:
        plain = fold_word(surface).replace("’", "'")
        # Remove the article of words such as `l'eau`, and the possessive ending of words such as
        # `Anna's`.
        head, _, tail = plain.partition("'")
        core = tail if len(tail) > len(head) else head
        has_content = is_content_word(core, stop_words) and plain not in stop_words
        core_surface = surface[-len(core) :] if core == tail else surface[: len(core)]
        singular = _SINGULARS.get(core, core) if language == "en" else core
        return Word(core_surface, plain, stem(singular) if has_content else "", has_content)

    return lambda text: list(map(build_word, split_words(text)))


def _tokenize_chinese(text: str) -> list[Word]:
    from rjieba import tag

    words = []
    for surface, kind in tag(text):
        key = fold_word(surface)
        has_content = is_content_word(key, load_stop_words("zh"))
        is_noun = has_content and kind.startswith(_CHINESE_NOUN_TAGS)
        words.append(Word(surface, key, key if has_content else "", is_noun))
    return words


def _tokenize_japanese(text: str) -> list[Word]:
    stop_words = load_stop_words("ja")
    words = []
    for morpheme in split_morphemes(text):
        plain = fold_word(morpheme.surface)
        has_content = is_content_word(plain, stop_words)
        is_content_noun = morpheme.kind == _NOUN and morpheme.sort in _JAPANESE_NOUN_KINDS
        key = fold_word(morpheme.lemma) if has_content else ""
        words.append(Word(morpheme.surface, plain, key, has_content and is_content_noun))
    return words


def detect_language(plain: PlainPost) -> str:
    """Return the ISO 639-1 code of a post's language.

    If the script doesn't identify the language, a statistical detector decides. If the post is too
    short for the detector, the language is Russian for Cyrillic letters, and otherwise English.
    """
    text = "\n".join((*plain.paragraphs, *plain.headings, plain.title))[:_MAX_SAMPLE_CHARACTERS]
    sample = text[:_MAX_SCRIPT_SAMPLE_CHARACTERS]
    letters = len(_LETTER.findall(sample))
    for language, script, share in _SCRIPTS:
        if letters and len(script.findall(sample)) / letters >= share:
            return language
    if letters < _MIN_LETTERS:
        return "ru" if _CYRILLIC.search(sample) else "en"
    with _DETECTOR_LOCK:
        # Import the language detector only if it is needed, because its model takes 100 MB of
        # memory.
        from py3langid import classify

        return str(classify(text)[0])


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a post.

    Attributes:
        is_complete: whether the sentence ends with punctuation and contains no URL.
        is_listed: whether the sentence belongs to a list item or introduces a list.
    """

    text: str
    words: tuple[Word, ...]
    opens_paragraph: bool
    is_complete: bool
    is_listed: bool

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
        paragraphs = _sample_evenly(paragraphs, room, min(room // 4, _MAX_FIRST_SENTENCES))
    sentences = [
        (text, number, index == 0)
        for number, paragraph in paragraphs
        for index, text in enumerate(split_sentences(paragraph, language))
    ]
    dashed_items = _find_dashed_items([text for text, _, _ in sentences])
    sampled_sentences = [
        Sentence(
            text,
            tuple(tokenize(text)),
            opens_paragraph,
            is_complete=bool(_COMPLETE_END.search(text[-4:])) and "://" not in text,
            is_listed=paragraph in plain.listed
            or index in dashed_items
            or bool(_BULLET.match(text) or _ANNOUNCING_END.search(text)),
        )
        for index, (text, paragraph, opens_paragraph) in _sample_evenly(
            [*enumerate(sentences)], _MAX_SENTENCES, _MAX_FIRST_SENTENCES
        )
    ]
    return Document(
        language=language,
        title=tuple(tokenize(plain.title)),
        headings=tuple(tuple(tokenize(text[:500])) for text in plain.headings[:_MAX_SENTENCES]),
        sentences=tuple(sampled_sentences),
    )


def _find_dashed_items(texts: list[str]) -> set[int]:
    """List items stand next to each other, unlike the names of quoted persons.

    Unlike lines of dialogue, list items have no full stop.
    """
    items = {
        index
        for index, text in enumerate(texts)
        if _DASH.match(text) and not _COMPLETE_END.search(text[-4:])
    }
    return {
        index
        for index in items
        if index - 1 in items or index + 1 in items or _DASH.search(texts[index], 2)
    }


def _sample_evenly(items: list[Item], max_items: int, first: int) -> list[Item]:
    """Keep the first items, and sample the others evenly."""
    if len(items) <= max_items:
        return items
    rest = items[first:]
    room = max_items - first
    return items[:first] + [rest[number * len(rest) // room] for number in range(room)]
