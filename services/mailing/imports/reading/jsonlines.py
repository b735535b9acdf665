"""Reads JSON Lines: one object a line, each with keys of its own.

An object within an object, such as that of our own fields, is read as columns of their own.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from core.refusals.imports import IMPORT_JSON_ARRAY, IMPORT_NO_READABLE_ROW
from services.mailing.imports.mapping.row_mapper import BLANKS
from services.mailing.imports.mapping.rows import RejectedRecord
from services.mailing.imports.reading.delimited import too_long
from services.mailing.imports.reading.dialect import Dialect, find_email_column
from services.mailing.imports.reading.lines import Block, split_lines

# Each object may have keys of its own. Keys beyond this number are not columns.
MAX_JSON_KEYS = 300
MAX_JSON_KEY_CHARACTERS = 200

_OBJECT = re.compile(r'\{[ \t]*["}]')
_ARRAY_OR_SPREAD_OBJECT = re.compile(r"\[\s*[{\]]|\{[ \t]*[\r\n]")

Values = dict[str, str]


def sniff(sample: str) -> Dialect | None:
    """The keys of the sample's objects, if it has some.

    Raises ``import.json_array``, ``import.no_readable_row``.
    """
    text = sample.lstrip(BLANKS)
    if _ARRAY_OR_SPREAD_OBJECT.match(text):
        raise IMPORT_JSON_ARRAY()
    if not _OBJECT.match(text):
        return None
    rows = [*objects([sample])]
    found = [one[1] for one in rows if not isinstance(one, RejectedRecord)]
    if not found and isinstance(first := next(iter(rows), None), RejectedRecord):
        raise IMPORT_NO_READABLE_ROW(line=first.line, reason=first.reason)
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


def _flat(found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values by their names, those of an object within this one as ``object.name``."""
    for name, value in found.items():
        if isinstance(value, dict) and value:
            for inner, each in value.items():
                yield _text(f"{name}.{inner}"), each
        else:
            yield _text(name), value


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
    return [values.get(name, "") for name in names]
