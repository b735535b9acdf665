"""Parses URL-encoded forms, and the words for true and false in forms and queries."""

from urllib.parse import parse_qsl

from api.limits.bulkheads import STORAGE

FORM = "application/x-www-form-urlencoded"

MAX_FORM_FIELDS = 100
# A longer form is decoded in a thread, because decoding percent escapes can take a second.
MAX_FORM_BYTES_ON_LOOP = 64 * 1024
# The words for booleans, because queries and forms contain only text.
BOOLEAN_WORDS = {"1": True, "true": True, "0": False, "false": False}


async def read_pairs(body: bytes) -> list[tuple[str, str]]:
    """Return all fields of a form, or raise ``ValueError`` for a malformed form.

    A long form is decoded in a thread, because decoding would block the event loop.
    """
    if len(body) <= MAX_FORM_BYTES_ON_LOOP:
        return parse_pairs(body)
    return await STORAGE.run(parse_pairs, body)


def parse_pairs(body: bytes) -> list[tuple[str, str]]:
    """Return all fields of a form, including repeated fields; raises ``ValueError``.

    Whitespace around the body is removed, because a form encodes the whitespace in its values.
    """
    text = body.decode().strip()
    return parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)


def parse_boolean(value: object) -> bool | None:
    """Return the boolean for a word in any case, or ``None`` for an unknown word."""
    return BOOLEAN_WORDS.get(str(value).lower())
