"""A post as ranked sentences: what summaries, tags and tweets are taken from."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from services.composer.offline.language import language_of
from services.composer.offline.tokens import Word, tokenizer
from services.composer.post import PlainPost
from services.composer.text.words import sentences_of

# What is looked at of a long post: its beginning whole, and the rest at even steps.
_MAX_DOCUMENT_CHARACTERS = 120_000
_MAX_PARAGRAPH_CHARACTERS = 20_000
_MAX_SENTENCES = 300
_FIRST_SENTENCES = 60
Item = TypeVar("Item")

_ENDS_WHOLE = re.compile(r"[.!?…。！？।؟۔։።]['\"”’»)\]）」』]*$")


@dataclass(frozen=True, slots=True)
class Sentence:
    text: str
    words: tuple[Word, ...]
    # Which paragraph it is in, and whether it begins that.
    paragraph: int
    opens: bool
    # Ends as a sentence ends, and shows no address.
    whole: bool

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
    found = list(_sentences(plain, language))
    kept = [
        Sentence(text, tuple(tokenize(text)), paragraph, opens, _is_whole(text))
        for text, paragraph, opens in _fairly(found, _MAX_SENTENCES, _FIRST_SENTENCES)
    ]
    return Document(
        language=language,
        title=tuple(tokenize(plain.title)),
        headings=tuple(tuple(tokenize(text[:500])) for text in plain.headings[:_MAX_SENTENCES]),
        sentences=tuple(kept),
    )


def _sentences(plain: PlainPost, language: str) -> Iterator[tuple[str, int, bool]]:
    for number, paragraph in _within_budget(plain.paragraphs):
        parts = sentences_of(paragraph, language)
        yield from ((text, number, index == 0) for index, text in enumerate(parts))


def _within_budget(paragraphs: Sequence[str]) -> list[tuple[int, str]]:
    numbered = [(i, text[:_MAX_PARAGRAPH_CHARACTERS]) for i, text in enumerate(paragraphs)]
    total = sum(len(text) for _, text in numbered)
    if total <= _MAX_DOCUMENT_CHARACTERS:
        return numbered
    most = max(1, len(numbered) * _MAX_DOCUMENT_CHARACTERS // total)
    return _fairly(numbered, most, min(most // 4, _FIRST_SENTENCES))


def _fairly(items: list[Item], most: int, first: int) -> list[Item]:
    """The first ones, and of the others as many at even steps as there is room for."""
    if len(items) <= most:
        return items
    rest, room = items[first:], most - first
    return items[:first] + [rest[i * len(rest) // room] for i in range(room)]


def _is_whole(text: str) -> bool:
    return bool(_ENDS_WHOLE.search(text[-4:])) and "://" not in text
