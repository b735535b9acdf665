"""Words, folded, that tell what a sentence or a word is for, in the languages looked after."""

from pathlib import Path


def _words(file_name: str) -> frozenset[str]:
    return frozenset(Path(__file__).with_name(file_name).read_text("utf-8").split())


FIRST_PERSON = _words("first_person.txt")
# As a sentence's first word they point back to a sentence that a summary may leave out.
POINTS_BACK = _words("points_back.txt")
ARTICLES = _words("articles.txt")
# Quantity and time: frequent words that no post is about.
MEASURES = _words("measures.txt")
