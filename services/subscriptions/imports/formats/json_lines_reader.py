"""Reads the records of a JSON Lines file, which contains one JSON object per line.

The objects in a JSON Lines file may have different keys. The values of nested objects become
columns such as ``person.name``.
"""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from core.errors import imports as errors
from core.languages.shown_lines import strip_invisible
from services.subscriptions.imports.formats.containers import READ_BYTES, Source
from services.subscriptions.imports.formats.dialect import Dialect, find_email_column
from services.subscriptions.imports.formats.line_blocks import Block, reject_long_line, split_lines
from services.subscriptions.imports.rows import ABSENT, RejectedRecord

# The maximum number of JSON keys that become columns.
MAX_JSON_KEYS = 300
MAX_JSON_KEY_CHARACTERS = 200
# The maximum depth at which nested JSON objects are split into columns.
MAX_JSON_DEPTH = 5
# The maximum size of a JSON document that isn't JSON Lines, because the parsed document takes
# several times as much memory.
MAX_DOCUMENT_BYTES = 16 * 1024**2

_OBJECT = re.compile(r'\{[ \t]*["}]')
_ARRAY_OR_SPREAD_OBJECT = re.compile(r"\[\s*[{\]]|\{[ \t]*[\r\n]")
_DOCUMENT = re.compile(rb"(?:\xef\xbb\xbf)?\s*[\[{]")

Values = dict[str, str]


def convert_document(stored: io.BufferedReader, size: int) -> Source:
    """Convert the records of a JSON document to JSON Lines, or return any other file unchanged.

    Mail providers' APIs often return suppressed addresses as a single JSON document.
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
        # The first field with a list of objects is assumed to contain the records of the JSON
        # document.
        lists = (value for value in document.values() if isinstance(value, list))
        records = next((each for each in lists if all(isinstance(i, dict) for i in each)), None)
    if records is None:
        stored.seek(0)
        return stored
    return io.BytesIO(b"\n".join(orjson.dumps(record) for record in records))


def detect_json_lines(sample: str) -> Dialect | None:
    """Return the dialect of a JSON Lines file, or ``None`` for any other file.

    Raises ``import.json_array``, ``import.no_readable_row``.
    """
    text = strip_invisible(sample)
    if _ARRAY_OR_SPREAD_OBJECT.match(text):
        raise errors.IMPORT_JSON_ARRAY()
    if not _OBJECT.match(text):
        return None
    rows = [*read_objects([sample])]
    objects = [row[1] for row in rows if not isinstance(row, RejectedRecord)]
    if not objects and isinstance(first := next(iter(rows), None), RejectedRecord):
        raise errors.IMPORT_NO_READABLE_ROW(line=first.line, reason=first.reason)
    header = list_keys(objects)
    records = [arrange_cells(values, header) for values in objects]
    return Dialect(None, header, records, find_email_column(records))


def read_objects(blocks: Iterable[Block]) -> Iterator[tuple[int, Values] | RejectedRecord]:
    line = 0
    for block in blocks:
        if not isinstance(block, str):
            line += 1
            yield reject_long_line(line)
            continue
        for text in split_lines(block):
            line += 1
            stripped = text.strip(" \t\r\n\x1a\ufeff")
            if not stripped:
                continue
            reason = "Not a JSON object."
            try:
                document = orjson.loads(stripped.encode("utf-8", "surrogateescape"))
            except orjson.JSONDecodeError as error:
                document = None
                reason = f"Invalid JSON: {error.msg}."
            except UnicodeEncodeError:
                document = None
            if isinstance(document, dict):
                yield line, {path: _to_text(value) for path, value in _flatten(document)}
            else:
                yield RejectedRecord(line, "row.unreadable", reason, (stripped,))


def list_keys(objects: Iterable[Values]) -> list[str]:
    keys = dict.fromkeys(key for values in objects for key in values)
    return [key for key in keys if len(key) <= MAX_JSON_KEY_CHARACTERS][:MAX_JSON_KEYS]


def arrange_cells(values: Values, header: Sequence[str]) -> list[str]:
    return [values.get(name, ABSENT) for name in header]


def _flatten(document: dict[str, Any], path: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, dict) and value and depth < MAX_JSON_DEPTH:
            yield from _flatten(value, f"{path}{name}.", depth + 1)
        else:
            yield _to_text(f"{path}{name}"), value


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value.replace("\0", "")
    if value is None or value in ([], {}):
        return ""
    return orjson.dumps(value).decode()
