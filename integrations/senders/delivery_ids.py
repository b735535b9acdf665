"""Finds the delivery id in a provider's event.

The owner's program attaches the delivery id to a mail to one member, and the provider returns the
delivery id in each event.
"""

import re
from collections.abc import Iterable, Mapping

HEADER = "x-pressroom-delivery"

_DELIVERY_ID = re.compile(r"[a-z0-9]{52}", re.ASCII | re.IGNORECASE)
# The maximum number of a mail's tags or headers that are searched for a delivery id. Providers
# allow far fewer than 1,000 tags or headers per mail.
_MAX_CANDIDATES = 1_000


def find_delivery_id(returned: object, headers: object = None, tags: object = None) -> str | None:
    """Return the first text that looks like a delivery id, or ``None``.

    ``returned`` is the value of the provider's own field for returned data. ``headers`` are an
    object or a list of objects with the fields ``name`` and ``value``. ``tags`` are a tag or a list
    of tags.
    """
    header_values = [value for name, value in _iterate_fields(headers) if name.lower() == HEADER]
    all_tags = tags[:_MAX_CANDIDATES] if isinstance(tags, list) else [tags]
    for candidate in (returned, *header_values, *all_tags):
        text = candidate.strip() if isinstance(candidate, str) else ""
        if _DELIVERY_ID.fullmatch(text):
            return text
    return None


def get_named_value(fields: object, name: str) -> object:
    """Ignore the case of the names in ``fields``. ``name`` must be in lower case."""
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
