"""Chunks: rows on their way from a file to a list, judged as far as the file alone allows."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import orjson

from services.mailing.imports.mapping.rows import RowExtras

ROWS_PER_CHUNK = 10_000


def chunk_key(prefix: str, number: int) -> str:
    """The key of one chunk among the objects of its import."""
    return f"{prefix}/chunks/{number:06}"


class JudgedRow(NamedTuple):
    """A row of a file. A row with a ``code`` is not applied, for the ``reason`` given.

    A chunk stores rows by the order of these fields but the last.

    Attributes:
        line: the physical line where the row begins, from 1; in a request, the member's place.
        email: normalised, and empty for a row with a code.
        left: why the file says that the person gets no mail: unsubscribed, cleaned, bounced,
            complained.
        cells: the original columns.
    """

    line: int
    email: str = ""
    name: str = ""
    tier: str | None = None
    paid_expiry: str | None = None
    left: str | None = None
    code: str | None = None
    reason: str | None = None
    cells: Sequence[str] = ()
    extras: RowExtras | None = None


INVALID, DUPLICATE = "invalid", "duplicate"
DUPLICATE_CODE = "row.duplicate"


def verdict_of(row: JudgedRow) -> str | None:
    """The verdict that needs no look at the list: ``invalid``, ``duplicate`` or none."""
    if row.code is None:
        return None
    return DUPLICATE if row.code == DUPLICATE_CODE else INVALID


_STORED = itemgetter(slice(0, 9))


def encode(rows: Sequence[JudgedRow]) -> bytes:
    """The rows as a chunk stores them; few have extras, which stand apart."""
    extras = {str(at): tuple(row.extras) for at, row in enumerate(rows) if row.extras}
    return orjson.dumps({"rows": rows, "extras": extras}, default=_STORED)


def decode(data: bytes) -> list[JudgedRow]:
    found: Any = orjson.loads(data)
    rows = [JudgedRow(*row) for row in found["rows"]]
    for at, extras in found["extras"].items():
        rows[int(at)] = rows[int(at)]._replace(extras=RowExtras(*extras))
    return rows
