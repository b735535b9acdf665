"""The vocabulary of imported files, except the words about consent."""

from services.subscriptions.imports.known_words import MAX_WORD_CHARACTERS, key, keys_of, load_words

_WORDS = load_words("column_vocabulary.toml")


def _by_key(table: str) -> dict[str, str]:
    return {key(word): meaning for meaning, words in _WORDS[table].items() for word in words}


NAME_OR_PART = keys_of(_WORDS["name_or_part"])

COLUMNS = {role: keys_of(words) for role, words in _WORDS["columns"].items()}

PRODUCTS = [
    (product, keys_of(names)) for product, signs in _WORDS["products"].items() for names in signs
]

# Columns of our own exports that say nothing of a person.
OWN_COLUMNS = keys_of(_WORDS["own_columns"])

TIERS = _by_key("tiers")

BOOLEANS = {word: meaning == "yes" for word, meaning in _by_key("booleans").items()}

_NO = keys_of(_WORDS["no"]) | {""}


def is_no(cell: str) -> bool:
    """Return whether a cell means "no", is empty, or is a date of zeros such as 0000-00-00."""
    return len(cell) <= MAX_WORD_CHARACTERS and key(cell).lstrip("0") in _NO
