"""Reads JSON of unknown structure from mail providers.

The functions return an empty value for a missing or invalid field, and never raise an exception.
Pressroom can therefore still read an event after a provider changes one of the event's fields.
"""

from collections.abc import Mapping, Sequence

from core import json_parsing
from core.json_parsing import DEFAULT_JSON_LIMITS, JsonLimits

_MAX_TEXT_CHARACTERS = 255
# A message of Amazon SNS has at most 256 KB, and an event of Mailgun is smaller.
MAX_SIGNED_BODY_BYTES = 300 * 1024
_SIGNED_BODY_LIMITS = JsonLimits(5_000, 20_000)


def parse_json(content: bytes, limits: JsonLimits = DEFAULT_JSON_LIMITS) -> object:
    """Return ``None`` for a document that is invalid, too large or nested too deeply."""
    try:
        return json_parsing.parse_json(content, limits)
    except ValueError:
        return None


def parse_signed_body(body: bytes) -> object:
    """Use low limits, because the body must be parsed before its signature can be verified."""
    is_too_large = len(body) > MAX_SIGNED_BODY_BYTES
    return None if is_too_large else parse_json(body, _SIGNED_BODY_LIMITS)


def get_object(value: object, *path: str) -> Mapping[str, object]:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def get_list(value: object, key: str) -> Sequence[object]:
    items = value.get(key) if isinstance(value, Mapping) else None
    return items if isinstance(items, list) else ()


def get_text(value: object, *path: str, max_characters: int = _MAX_TEXT_CHARACTERS) -> str | None:
    """Return ``None`` if the text is missing, empty, too long or unprintable."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(value, str) or not 0 < len(value) <= max_characters:
        return None
    return value if value.isprintable() else None
