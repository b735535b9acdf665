"""Rows on their way from a file to a list, judged as far as the file alone can tell."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson

ROWS_PER_CHUNK = 10_000


def chunk_key(prefix: str, number: int) -> str:
    """Where the rows of one chunk are, among an import's objects."""
    return f"{prefix}/chunks/{number:06}"


class JudgedRow(NamedTuple):
    """One row. With a ``code`` it is not applied, for the ``reason`` given.

    Attributes:
        line: the physical line where it begins, from 1; in a request, the place of the member.
        email: normalised, unless the row has a code.
        left: why the file says that they get no mail: unsubscribed, cleaned, bounced, complained.
        cells: the original columns.
    """

    line: int
    email: str
    name: str
    tier: str | None
    paid_expiry: str | None
    left: str | None
    code: str | None
    reason: str | None
    cells: Sequence[str]


INVALID, DUPLICATE = "invalid", "duplicate"
DUPLICATE_CODE = "row.duplicate"


def verdict_of(entry: JudgedRow) -> str | None:
    """What is settled without the list: ``invalid``, ``duplicate`` or nothing."""
    if entry.code is None:
        return None
    return DUPLICATE if entry.code == DUPLICATE_CODE else INVALID


def encode(entries: Iterable[JudgedRow]) -> bytes:
    return orjson.dumps(list(entries), default=tuple)


def decode(data: bytes) -> list[JudgedRow]:
    rows: list[list[Any]] = orjson.loads(data)
    return [JudgedRow._make(row) for row in rows]
