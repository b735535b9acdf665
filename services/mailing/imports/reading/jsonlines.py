"""Reads JSON Lines: one object a line, each with keys of its own."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from services.mailing.imports.mapping.rows import RejectedRecord
from services.mailing.imports.reading.delimited import too_long
from services.mailing.imports.reading.lines import Block, split_lines

# Each object may have keys of its own. Keys beyond this number are not columns.
MAX_JSON_KEYS = 300
MAX_JSON_KEY_CHARACTERS = 200

Values = dict[str, str]


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
            if stripped := text.strip(" \t\r\n\x1a\ufeff"):
                yield _read(line, stripped)


def _read(line: int, text: str) -> tuple[int, Values] | RejectedRecord:
    try:
        found = orjson.loads(text.encode("utf-8", "surrogateescape"))
    except orjson.JSONDecodeError as error:
        return RejectedRecord(line, "row.unreadable", f"Not JSON: {error.msg}.", (text,))
    except UnicodeEncodeError:
        found = None
    if not isinstance(found, dict):
        return RejectedRecord(line, "row.unreadable", "Not a JSON object.", (text,))
    return line, {_text(name): _text(value) for name, value in found.items()}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.replace("\0", "")
    if value is None:
        return ""
    return orjson.dumps(value).decode()


def header(found: Iterable[Values]) -> list[str]:
    """All keys of these objects that may be columns, in the order of the file."""
    names = dict.fromkeys(name for values in found for name in values)
    return [name for name in names if len(name) <= MAX_JSON_KEY_CHARACTERS][:MAX_JSON_KEYS]


def cells(values: Values, names: Sequence[str]) -> list[str]:
    return [values.get(name, "") for name in names]
