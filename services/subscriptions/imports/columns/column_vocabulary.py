"""Loads the words that imports recognise in headers and cells, except words about consent."""

from services.subscriptions.imports.columns.known_words import (
    MAX_WORD_CHARACTERS,
    load_words,
    normalise_word,
    normalise_words,
)

_WORDS = load_words("column_vocabulary.toml")
# Headers such as "Name", which may mean a full name or one part of a name.
NAME_OR_PART = normalise_words(_WORDS["name_or_part"])
# Maps each column role to the headers that indicate the role.
COLUMNS = {role: normalise_words(words) for role, words in _WORDS["columns"].items()}
# Maps headers in many languages to their meanings, for example "Ort" to "city".
_CONCEPTS: dict[str, str] = {
    normalise_word(word): concept for concept, words in _WORDS["fields"].items() for word in words
}
# Pairs of a newsletter product and the headers of the product's exports. A file that contains all
# headers of a pair was exported by the pair's product.
PRODUCTS = [
    (product, normalise_words(headers))
    for product, alternatives in _WORDS["products"].items()
    for headers in alternatives
]
# Headers in files that Pressroom has exported. An import ignores columns with these headers.
OWN_COLUMNS = normalise_words(_WORDS["own_columns"])
# Maps words in tier columns, such as "premium", to tiers.
TIERS: dict[str, str] = {
    normalise_word(word): tier for tier, words in _WORDS["tiers"].items() for word in words
}
# Maps words such as "yes" and "no" to the values of boolean fields.
BOOLEANS: dict[str, bool] = {
    normalise_word(word): answer == "yes"
    for answer, words in _WORDS["booleans"].items()
    for word in words
}

_NO = normalise_words(_WORDS["no"]) | {""}


def find_concept(name: str) -> str:
    """Return the meaning of a header or field name, such as "city", or "" if it is unknown."""
    return _CONCEPTS.get(normalise_word(name), "")


def is_no(cell: str) -> bool:
    return len(cell) <= MAX_WORD_CHARACTERS and normalise_word(cell).lstrip("0") in _NO
