"""Reads what the interfaces of sending products answer: one JSON document with a list of records.

Files of members are JSON Lines, which need no memory for the whole. A list of suppressed addresses
is short, and is stored by people just as it was answered.
"""

import io
import re
from typing import Any

import orjson

from services.mailing.imports.reading.sources import READ_BYTES, RangedFile, Source

# A larger file has to be JSON Lines. Parsed, a document takes several times as much memory.
MAX_DOCUMENT_BYTES = 16 * 1024**2
_DOCUMENT = re.compile(rb"(?:\xef\xbb\xbf)?\s*[\[{]")


def as_lines(stored: RangedFile, size: int) -> Source:
    """The records of a JSON document as JSON Lines; every other file as it is.

    ``size`` is that of the file in bytes.
    """
    head = stored.read(READ_BYTES)
    stored.seek(0)
    if size > MAX_DOCUMENT_BYTES or not _DOCUMENT.match(head):
        return stored
    try:
        document = orjson.loads(stored.read().removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        document = None
    records = _records(document)
    if records is None:
        stored.seek(0)
        return stored
    return io.BytesIO(b"\n".join(orjson.dumps(each) for each in records))


def _records(document: Any) -> list[Any] | None:
    """The document itself, if it is a list, or else its first field that is a list of objects."""
    if isinstance(document, list):
        return document
    if isinstance(document, dict):
        for value in document.values():
            if isinstance(value, list) and all(isinstance(each, dict) for each in value):
                return value
    return None
