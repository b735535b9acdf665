"""Reads the records of a JSON Lines file."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from core.errors import imports as errors
from core.languages.shown_lines import strip_unseen
from services.subscriptions.imports.containers import READ_BYTES, Source
from services.subscriptions.imports.dialect import (
    Dialect,
    find_email_column,
)
from services.subscriptions.imports.line_blocks import Block, split_lines, too_long
from services.subscriptions.imports.rows import ABSENT, RejectedRecord

# Each object may have keys of its own. Keys beyond this number are not columns.
MAX_JSON_KEYS = 300

MAX_JSON_KEY_CHARACTERS = 200

# The maximum depth of nested objects. Objects that are nested more deeply aren't split into
# columns.
MAX_JSON_DEPTH = 5

_OBJECT = re.compile(r'\{[ \t]*["}]')

_ARRAY_OR_SPREAD_OBJECT = re.compile(r"\[\s*[{\]]|\{[ \t]*[\r\n]")

Values = dict[str, str]


def sniff(sample: str) -> Dialect | None:
    """The keys of the sample's objects, if it has some.

    Raises ``import.json_array``, ``import.no_readable_row``.
    """
    text = strip_unseen(sample)
    if _ARRAY_OR_SPREAD_OBJECT.match(text):
        raise errors.IMPORT_JSON_ARRAY()
    if not _OBJECT.match(text):
        return None
    rows = [*objects([sample])]
    found = [one[1] for one in rows if not isinstance(one, RejectedRecord)]
    if not found and isinstance(first := next(iter(rows), None), RejectedRecord):
        raise errors.IMPORT_NO_READABLE_ROW(line=first.line, reason=first.reason)
    names = header(found)
    records = [cells(values, names) for values in found]
    return Dialect(None, names, records, find_email_column(records))


def objects(blocks: Iterable[Block]) -> Iterator[tuple[int, Values] | RejectedRecord]:
    """Each object's line and values, as text, or its rejection."""
    line = 0
    for block in blocks:
        if not isinstance(block, str):
            line += 1
            yield too_long(line)
            continue
        for text in split_lines(block):
            line += 1
            stripped = text.strip(" \t\r\n\x1a\ufeff")
            if not stripped:
                continue
            reason = "Not a JSON object."
            try:
                found = orjson.loads(stripped.encode("utf-8", "surrogateescape"))
            except orjson.JSONDecodeError as error:
                found, reason = None, f"Not JSON: {error.msg}."
            except UnicodeEncodeError:
                found = None
            if isinstance(found, dict):
                yield line, {name: _text(value) for name, value in _flat(found)}
            else:
                yield RejectedRecord(line, "row.unreadable", reason, (stripped,))


def _flat(found: dict[str, Any], path: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """Yield each value with its path in the object, such as ``person.name``."""
    for name, value in found.items():
        if isinstance(value, dict) and value and depth < MAX_JSON_DEPTH:
            yield from _flat(value, f"{path}{name}.", depth + 1)
        else:
            yield _text(f"{path}{name}"), value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.replace("\0", "")
    if value is None or value in ([], {}):
        return ""
    return orjson.dumps(value).decode()


def header(found: Iterable[Values]) -> list[str]:
    """All keys of these objects that may be columns, in the order of the file."""
    names = dict.fromkeys(name for values in found for name in values)
    return [name for name in names if len(name) <= MAX_JSON_KEY_CHARACTERS][:MAX_JSON_KEYS]


def cells(values: Values, names: Sequence[str]) -> list[str]:
    return [values.get(name, ABSENT) for name in names]


# A larger file has to be JSON Lines. Parsed, a document takes several times as much memory.
MAX_DOCUMENT_BYTES = 16 * 1024**2

_DOCUMENT = re.compile(rb"(?:\xef\xbb\xbf)?\s*[\[{]")


def as_lines(stored: io.BufferedReader, size: int) -> Source:
    """The records of a JSON document of this size as JSON Lines; every other file as it is.

    A list of suppressed addresses is often stored just as it was answered.
    """
    head = stored.read(READ_BYTES)
    stored.seek(0)
    if size > MAX_DOCUMENT_BYTES or not _DOCUMENT.match(head):
        return stored
    try:
        document = orjson.loads(stored.read().removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        document = None
    records = document if isinstance(document, list) else None
    if isinstance(document, dict):
        # Its first field that is a list of objects.
        lists = (each for each in document.values() if isinstance(each, list))
        records = next((each for each in lists if all(isinstance(i, dict) for i in each)), None)
    if records is None:
        stored.seek(0)
        return stored
    return io.BytesIO(b"\n".join(orjson.dumps(each) for each in records))
