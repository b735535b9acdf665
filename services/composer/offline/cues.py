"""Words, folded, that tell what a sentence or a word is for, in the languages looked after."""

from functools import cache
from pathlib import Path


def _words(file_name: str) -> frozenset[str]:
    return frozenset(_text(file_name).split())


def _text(file_name: str) -> str:
    return Path(__file__).with_name(file_name).read_text("utf-8")


@cache
def _by_language(file_name: str) -> dict[str, frozenset[str]]:
    """The words of each line by the language's code, with which the line begins."""
    lines = (line.split() for line in _text(file_name).splitlines())
    return {code: frozenset(words) for code, *words in lines}


def first_person(language: str) -> frozenset[str]:
    """A language's own words alone: `mes` is `my` in French, and `month` in Spanish."""
    return _by_language("first_person.txt").get(language, frozenset())


def first_person_plural(language: str) -> frozenset[str]:
    return _by_language("first_person_plural.txt").get(language, frozenset())


def points_back(language: str) -> frozenset[str]:
    """As a sentence's first word they point back to a sentence that a summary may leave out."""
    return _by_language("points_back.txt").get(language, frozenset())


ARTICLES = _words("articles.txt")
# Quantity and time: frequent words that no post is about.
MEASURES = _words("measures.txt")
