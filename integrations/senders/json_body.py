"""Reads JSON of unknown structure from mail providers.

The functions return an empty value for a missing or invalid field, and never raise an exception, so
that Pressroom can still read an event after a provider changes one of the event's fields.
"""

from collections.abc import Mapping, Sequence

import orjson

_MAX_TEXT_CHARACTERS = 255


def parse_json(content: bytes | str) -> object:
    """Return the content of a JSON document, or ``None`` if the document is invalid.

    A document that is nested too deeply is invalid. If a key occurs twice in a JSON object, the
    parser uses the last value.
    """
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None


def get_object(value: object, *path: str) -> Mapping[str, object]:
    """Follow the keys in ``path`` through nested objects, and return the last object.

    Return an empty object if a key is missing or its value isn't an object.
    """
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def get_list(value: object, key: str) -> Sequence[object]:
    """Return the list in the field ``key``, or an empty list if the field contains no list."""
    items = value.get(key) if isinstance(value, Mapping) else None
    return items if isinstance(items, list) else ()


def get_text(value: object, *path: str, max_characters: int = _MAX_TEXT_CHARACTERS) -> str | None:
    """Follow the keys in ``path`` through nested objects, and return the text at the end.

    Return ``None`` if the text is missing, empty or too long, or contains unprintable characters.
    """
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(value, str) or not 0 < len(value) <= max_characters:
        return None
    return value if value.isprintable() else None
