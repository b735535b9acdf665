"""Defines the validated rows of an import, and their encoding in chunks."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import orjson

from services.subscriptions.imports.rows import (
    STRICTNESS,
    MemberRow,
    OmittedValue,
    RejectedRecord,
    RowExtras,
    SuppressionStatus,
)

# The value of ``paid_expiry`` in a row that removes the stored end of the paid tier.
CLEARED = ""
DUPLICATE_CODE = "row.duplicate"
EARLIER_ROW_REASON = "The address came before in the same file."
STRICTER_ROW_REASON = "Another row of this address counts, because it is stricter."
_STORED_FIELDS = itemgetter(slice(0, 9))


class JudgedRow(NamedTuple):
    """A judged row. A row with a ``code`` isn't applied, and ``reason`` says why not.

    A stored chunk contains all fields of a row except ``extras``, in the order of ``JudgedRow``.

    Attributes:
        line: the number of the physical line where the row begins, counted from 1. In a request,
            ``line`` is the position of the member.
        email: the normalised e-mail address. ``email`` is empty if the address is invalid, or if
            another row with the same address is applied.
        paid_expiry: the end of the paid tier. ``CLEARED`` removes the stored end of the paid tier.
            ``None`` means that the row doesn't state an end of the paid tier.
        opt_out: the opt-out status in the file (unsubscribed, cleaned, bounced or complained), or
            ``None`` without an opt-out.
        cells: the original cells of the row.
    """

    line: int
    email: str = ""
    name: str = ""
    tier: str | None = None
    paid_expiry: str | None = None
    opt_out: str | None = None
    code: str | None = None
    reason: str | None = None
    cells: Sequence[str] = ()
    extras: RowExtras | None = None

    @property
    def is_withheld(self) -> bool:
        """Return whether the row is rejected and blocks all rows that would add the person."""
        return self.code is not None and bool(self.email)

    @property
    def strictness(self) -> int:
        """Return the rank of the row's status in ``STRICTNESS``.

        The property is undefined for a rejected row, which has a ``code``.
        """
        return STRICTNESS[SuppressionStatus(self.opt_out or SuppressionStatus.WANTED)]


def reject_row(row: MemberRow | RejectedRecord | JudgedRow, code: str, reason: str) -> JudgedRow:
    return JudgedRow(line=row.line, code=code, reason=reason, cells=row.cells)


def encode_rows(rows: Sequence[JudgedRow]) -> bytes:
    """Encode validated rows for storage in a chunk.

    The extras of rows are encoded separately, because few rows have extras.
    """
    extras = {str(place): tuple(row.extras) for place, row in enumerate(rows) if row.extras}
    return orjson.dumps({"rows": rows, "extras": extras}, default=_STORED_FIELDS)


def decode_rows(data: bytes) -> list[JudgedRow]:
    stored: Any = orjson.loads(data)
    rows = [JudgedRow(*row) for row in stored["rows"]]
    for place, extras in stored["extras"].items():
        values = RowExtras(*extras)
        values = values._replace(left_out=[OmittedValue(*each) for each in values.left_out])
        rows[int(place)] = rows[int(place)]._replace(extras=values)
    return rows
