"""Loads the words that are recognised in imported files, except words about consent."""

from services.subscriptions.imports.known_words import (
    MAX_WORD_CHARACTERS,
    load_words,
    normalise_word,
    normalise_words,
)

_WORDS = load_words("column_vocabulary.toml")
# Headers such as "Name", which may mean a person's full name or only one part of the name.
NAME_OR_PART = normalise_words(_WORDS["name_or_part"])
# Maps each role of a column to the headers that are recognised as the role.
COLUMNS = {role: normalise_words(words) for role, words in _WORDS["columns"].items()}
# Pairs of a newsletter product and the headers that identify the product's exports. A file is
# recognised as the export of a product if the file has all headers in one pair.
PRODUCTS = [
    (product, normalise_words(headers))
    for product, alternatives in _WORDS["products"].items()
    for headers in alternatives
]
# The headers in exports from Pressroom whose columns an import ignores.
OWN_COLUMNS = normalise_words(_WORDS["own_columns"])
# Maps words such as "premium" in the cells of tier columns to tiers.
TIERS: dict[str, str] = {
    normalise_word(word): tier for tier, words in _WORDS["tiers"].items() for word in words
}
# Maps words in cells, such as "yes" and "no", to the values of boolean fields.
BOOLEANS: dict[str, bool] = {
    normalise_word(word): answer == "yes"
    for answer, words in _WORDS["booleans"].items()
    for word in words
}

_NO = normalise_words(_WORDS["no"]) | {""}


def is_no(cell: str) -> bool:
    """Return whether a cell means "no", is empty, or is a date of zeros such as 0000-00-00."""
    return len(cell) <= MAX_WORD_CHARACTERS and normalise_word(cell).lstrip("0") in _NO
