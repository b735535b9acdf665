"""Reads the JSON of providers, which can have any form.

The functions never raise an error. A field that is missing or has the wrong type yields an empty
value, so that a new or changed field of a provider only affects this field.
"""

from collections.abc import Mapping, Sequence

import orjson

_MAX_TEXT_CHARACTERS = 255


def parse_json(content: bytes | str) -> object:
    """Return the content of a JSON document, or ``None`` if it is unreadable.

    The parser limits the depth of the document. If an object repeats a key, its last value counts.
    """
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None


def get_object(value: object, *path: str) -> Mapping[str, object]:
    """Return the object at ``path``, or an empty object."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def get_list(value: object, key: str) -> Sequence[object]:
    """Return the list in the field ``key``, or an empty list."""
    items = value.get(key) if isinstance(value, Mapping) else None
    return items if isinstance(items, list) else ()


def get_text(value: object, *path: str, max_characters: int = _MAX_TEXT_CHARACTERS) -> str | None:
    """Return the text at ``path``, or ``None`` if it is empty, too long or not printable."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(value, str) or not 0 < len(value) <= max_characters:
        return None
    return value if value.isprintable() else None
