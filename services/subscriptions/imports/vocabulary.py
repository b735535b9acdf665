"""Words of headers and cells: how text is folded, split into words and looked up."""

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

MAX_WORD_CHARACTERS = 60
# A longer header or cell is compared by its beginning.
MAX_TEXT_CHARACTERS = 200

_NOT_A_WORD = re.compile(r"[\W_]+")
# "HasOptedOutOfEmail", "do-not-contact" and "HTML2mail" are split alike.
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+")


def load_words(name: str) -> Mapping[str, Any]:
    """Return the tables of a TOML file of this package."""
    return tomllib.loads(Path(__file__).with_name(name).read_text("utf-8"))


def fold(text: str) -> str:
    """Return ``text`` in lower case and without accents."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(character for character in plain if not unicodedata.combining(character))


@lru_cache(4096)
def _folded_key(text: str) -> str:
    return _NOT_A_WORD.sub("", fold(text))


def key(text: str) -> str:
    """``text`` as it is looked up: "E-mail Address " and "email_address" have the same key."""
    # The cache holds only short words, so that its size is bounded.
    return _folded_key(text) if len(text) <= MAX_WORD_CHARACTERS else ""


def keys_of(words: Iterable[str]) -> frozenset[str]:
    return frozenset(map(key, words))


def split_words(text: str) -> list[str]:
    """Return the folded words of the beginning of ``text``.

    Blanks, punctuation, digits and capital letters inside a word separate words.
    """
    composed = unicodedata.normalize("NFC", text[:MAX_TEXT_CHARACTERS])
    plain = composed.translate(_WITHOUT_ACCENTS)
    return [word for match in _WORD.findall(plain) if (word := _NOT_A_WORD.sub("", fold(match)))]


# Accented capitals are capitals for ``_WORD`` too.
_WITHOUT_ACCENTS = {
    number: letter
    for number in range(0xC0, 0x180)
    if (letter := unicodedata.normalize("NFKD", chr(number))[0]).isascii() and letter.isalpha()
}

_NO = keys_of(load_words("columns.toml")["no"]) | {""}


def is_no(cell: str) -> bool:
    """Return whether a cell says no, is empty, or is a date that has only zeros."""
    return len(cell) <= MAX_WORD_CHARACTERS and key(cell).lstrip("0") in _NO
