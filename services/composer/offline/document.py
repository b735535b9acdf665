"""A post as sentences of words, from which summaries, tags and tweets are taken."""

import re
from dataclasses import dataclass
from typing import TypeVar

from services.composer.offline.language import language_of
from services.composer.offline.tokenizers import Word, tokenizer
from services.composer.post import PlainPost
from services.composer.text.words import sentences_of

# Of a long post the beginning is read whole, and the rest at even steps.
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
    # The number of its paragraph, and whether it begins that.
    paragraph: int
    opens: bool
    # Whether it ends as a sentence does, and shows no URL.
    whole: bool
    # Whether it is an item of a list, or announces one: it says little without the others.
    listed: bool

    def keys(self) -> set[str]:
        return {word.key for word in self.words if word.key}


@dataclass(frozen=True, slots=True)
class Document:
    language: str
    title: tuple[Word, ...]
    headings: tuple[tuple[Word, ...], ...]
    sentences: tuple[Sentence, ...]


def document_of(plain: PlainPost) -> Document:
    language = language_of(plain)
    tokenize = tokenizer(language)
    paragraphs = [(i, text[:_MAX_PARAGRAPH_CHARACTERS]) for i, text in enumerate(plain.paragraphs)]
    total = sum(len(text) for _, text in paragraphs)
    if total > _MAX_DOCUMENT_CHARACTERS:
        room = max(1, len(paragraphs) * _MAX_DOCUMENT_CHARACTERS // total)
        paragraphs = _fairly(paragraphs, room, min(room // 4, _FIRST_SENTENCES))
    found = [
        (text, number, index == 0)
        for number, paragraph in paragraphs
        for index, text in enumerate(sentences_of(paragraph, language))
    ]
    kept = [
        Sentence(
            text,
            tuple(tokenize(text)),
            paragraph,
            opens,
            whole=bool(_ENDS_WHOLE.search(text[-4:])) and "://" not in text,
            listed=paragraph in plain.listed or _is_listed(text),
        )
        for text, paragraph, opens in _fairly(found, _MAX_SENTENCES, _FIRST_SENTENCES)
    ]
    return Document(
        language=language,
        title=tuple(tokenize(plain.title)),
        headings=tuple(tuple(tokenize(text[:500])) for text in plain.headings[:_MAX_SENTENCES]),
        sentences=tuple(kept),
    )


def _is_listed(text: str) -> bool:
    """By its own characters, as in a text without markup."""
    return bool(_BULLET.match(text) or _ANNOUNCES.search(text))


def _fairly(items: list[Item], max_items: int, first: int) -> list[Item]:
    """The first items, and of the others as many at even steps as there is room for."""
    if len(items) <= max_items:
        return items
    rest, room = items[first:], max_items - first
    return items[:first] + [rest[i * len(rest) // room] for i in range(room)]
