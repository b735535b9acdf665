"""Finds the delivery id in a provider's event.

Each provider has its own field for data that it returns in events. The delivery id can also be in
one of the mail's headers or tags, if the provider returns them.
"""

import re
from collections.abc import Iterable, Mapping

HEADER = "x-pressroom-delivery"

_DELIVERY_ID = re.compile(r"[a-z0-9]{52}", re.ASCII | re.IGNORECASE)
# Providers allow far fewer tags and headers than this. The rest of a longer list isn't searched.
_MAX_CANDIDATES = 1_000


def find_delivery_id(returned: object, headers: object = None, tags: object = None) -> str | None:
    """Return the first text that looks like a delivery id, or ``None``.

    Args:
        returned: the value of the provider's own field for returned data.
        headers: the headers of the mail. They are an object, or a list of objects with the fields
            ``name`` and ``value``.
        tags: a tag or a list of tags.
    """
    header_values = [value for name, value in _iterate_fields(headers) if name.lower() == HEADER]
    all_tags = tags[:_MAX_CANDIDATES] if isinstance(tags, list) else [tags]
    for candidate in (returned, *header_values, *all_tags):
        text = candidate.strip() if isinstance(candidate, str) else ""
        if _DELIVERY_ID.fullmatch(text):
            return text
    return None


def get_named_value(fields: object, name: str) -> object:
    """Return the value of a field, or ``None`` if the field is missing.

    Args:
        fields: an object, or a list of objects with the fields ``name`` and ``value``.
        name: the name of the field, in lower case.
    """
    matches = (value for key, value in _iterate_fields(fields) if key.lower() == name)
    return next(matches, None)


def _iterate_fields(fields: object) -> Iterable[tuple[str, object]]:
    if isinstance(fields, Mapping):
        yield from list(fields.items())[:_MAX_CANDIDATES]
    elif isinstance(fields, list):
        for field in fields[:_MAX_CANDIDATES]:
            name = field.get("name") if isinstance(field, Mapping) else None
            if isinstance(name, str):
                yield name, field.get("value")
