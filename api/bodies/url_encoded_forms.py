"""Parses URL-encoded forms, and boolean words such as ``true`` in forms and queries."""

from urllib.parse import parse_qsl

from api.limits.bulkheads import STORAGE

FORM = "application/x-www-form-urlencoded"

MAX_FORM_FIELDS = 100
# The maximum size of a form that is decoded on the event loop. A form above this size is decoded in
# a thread, because decoding many percent escapes can take a second.
MAX_FORM_BYTES_ON_LOOP = 64 * 1024
# The words for true and false in queries and forms.
BOOLEAN_WORDS = {"1": True, "true": True, "0": False, "false": False}


async def read_pairs(body: bytes) -> list[tuple[str, str]]:
    """Decode a large form in a thread, so that the event loop isn't blocked."""
    if len(body) <= MAX_FORM_BYTES_ON_LOOP:
        return parse_pairs(body)
    return await STORAGE.run(parse_pairs, body)


def parse_pairs(body: bytes) -> list[tuple[str, str]]:
    """Raise ``ValueError`` for a malformed form. Remove whitespace around the whole form."""
    text = body.decode().strip()
    return parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)


def parse_boolean(value: object) -> bool | None:
    """Return ``None`` for an unknown word."""
    return BOOLEAN_WORDS.get(str(value).lower())
