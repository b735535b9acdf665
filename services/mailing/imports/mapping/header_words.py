"""The words of headers and cells, which ``header_words.toml`` lists."""

import re
import tomllib
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from services.mailing.imports.mapping.rows import SuppressionStatus

MAX_WORD_CHARACTERS = 60

_NOT_A_WORD = re.compile(r"[\W_]+")
_WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


@lru_cache(4096)
def _folded(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(character for character in plain if not unicodedata.combining(character))
    return _NOT_A_WORD.sub("", kept)


def key(text: str) -> str:
    """``text`` as it is looked up: "E-mail Address " and "email_address" have the same key."""
    # The cache holds short words alone, so that its size is bounded.
    return _folded(text) if len(text) <= MAX_WORD_CHARACTERS else ""


def _keys(words: Iterable[str]) -> frozenset[str]:
    return frozenset(map(key, words))


def _by_key(table: str) -> dict[str, str]:
    return {key(word): meaning for meaning, words in _WORDS[table].items() for word in words}


COLUMNS = {role: _keys(words) for role, words in _WORDS["columns"].items()}
PRODUCTS = [
    (product, _keys(names)) for product, signs in _WORDS["products"].items() for names in signs
]
LEFT_AT = {word: SuppressionStatus(status) for word, status in _by_key("left_at").items()}
# The person is neither a member nor opted out: they are not imported, and may join.
NOT_SUBSCRIBED = None
STATUSES = {
    word: NOT_SUBSCRIBED if status == "not_subscribed" else SuppressionStatus(status)
    for word, status in _by_key("statuses").items()
}
TIERS = _by_key("tiers")
_NO = _keys(_WORDS["no"]) | {""}


def is_no(cell: str) -> bool:
    """Whether a cell says no, is empty, or is a date of zeros alone."""
    return len(cell) <= MAX_WORD_CHARACTERS and key(cell).lstrip("0") in _NO
