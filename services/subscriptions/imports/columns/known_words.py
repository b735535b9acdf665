"""Normalises headers and cells, in order to compare them with lists of known words."""

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

MAX_WORD_CHARACTERS = 60
# Only this number of characters of a header or cell is compared with known words.
MAX_TEXT_CHARACTERS = 200

_NOT_A_WORD = re.compile(r"[\W_]+")
# Matches the words in texts such as "HasOptedOutOfEmail", "do-not-contact" and "HTML2mail".
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+")
# Maps accented letters to letters without accents, because ``_WORD`` recognises only A to Z as
# capital letters.
_WITHOUT_ACCENTS = {
    number: letter
    for number in range(0xC0, 0x180)
    if (letter := unicodedata.normalize("NFKD", chr(number))[0]).isascii() and letter.isalpha()
}


def load_words(name: str) -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name(name).read_text("utf-8"))


def normalise_words(words: Iterable[str]) -> frozenset[str]:
    return frozenset(map(normalise_word, words))


def normalise_word(text: str) -> str:
    """Return ``text`` in lower case, without accents, spaces and punctuation, or "" if it is longer
    than ``MAX_WORD_CHARACTERS``.
    """
    # Cache the normalised text only for short texts, so that the cache doesn't use too much memory.
    return _normalise_short_word(text) if len(text) <= MAX_WORD_CHARACTERS else ""


def split_words(text: str) -> list[str]:
    """Split the beginning of ``text`` into words, in lower case and without accents.

    Whitespace and punctuation separate words. A new word begins at each number, and at each capital
    letter after a lower-case letter.
    """
    composed = unicodedata.normalize("NFC", text[:MAX_TEXT_CHARACTERS])
    plain = composed.translate(_WITHOUT_ACCENTS)
    parts = (_NOT_A_WORD.sub("", fold_text(match)) for match in _WORD.findall(plain))
    return [part for part in parts if part]


def fold_text(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(character for character in plain if not unicodedata.combining(character))


@lru_cache(4096)
def _normalise_short_word(text: str) -> str:
    return _NOT_A_WORD.sub("", fold_text(text))
