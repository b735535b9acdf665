"""Defines the validated rows of an import, and encodes the rows for storage."""

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

# The value of ``paid_expiry`` that tells the import to remove the stored end of the paid tier.
CLEARED = ""
DUPLICATE_CODE = "row.duplicate"
EARLIER_ROW_REASON = "The address occurs earlier in the same file."
STRICTER_ROW_REASON = "Another row with this address is stricter and was used instead."
_STORED_FIELDS = itemgetter(slice(0, 9))


class JudgedRow(NamedTuple):
    """A judged row. If a row has a ``code``, the row isn't applied, and ``reason`` states why.

    A stored chunk contains the fields of each row in the order of ``JudgedRow``, and encodes
    ``extras`` separately.

    Attributes:
        line: the number of the physical line where the row begins, counted from 1. For an import
            from a request, ``line`` is the position of the member in the request.
        email: the e-mail address in the row, normalised. ``email`` is empty if the address is
            invalid, or if the row is a duplicate of a row that is applied.
        paid_expiry: when the member's paid tier ends. If ``paid_expiry`` is ``CLEARED``, the stored
            end of the paid tier is removed. If ``paid_expiry`` is ``None``, the row doesn't state
            when the paid tier ends.
        opt_out: the row's status if the row is an opt-out (unsubscribed, cleaned, bounced or
            complained), otherwise ``None``.
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
        """Return whether the row is rejected, and no row of the import may add the person."""
        return self.code is not None and bool(self.email)

    @property
    def strictness(self) -> int:
        """Return the rank of the row's status in ``STRICTNESS``.

        Don't use the property for a rejected row, which has a ``code``.
        """
        return STRICTNESS[SuppressionStatus(self.opt_out or SuppressionStatus.WANTED)]


def reject_row(row: MemberRow | RejectedRecord | JudgedRow, code: str, reason: str) -> JudgedRow:
    return JudgedRow(line=row.line, code=code, reason=reason, cells=row.cells)


def encode_rows(rows: Sequence[JudgedRow]) -> bytes:
    """Encode validated rows as the content of a stored chunk.

    The fields, tags and consent claims of rows are encoded separately, because few rows have any.
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
