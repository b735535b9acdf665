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

# A value of ``paid_expiry`` that removes the stored end of the paid tier.
CLEARED = ""
DUPLICATE_CODE = "row.duplicate"
EARLIER_ROW_REASON = "The address occurs earlier in the same file."
STRICTER_ROW_REASON = "Another row with this address is stricter and was used instead."
_STORED_FIELDS = itemgetter(slice(0, 9))


class JudgedRow(NamedTuple):
    """A judged row. A row with a ``code`` isn't applied, and ``reason`` states why.

    A stored chunk contains the attributes of each row in the order of ``JudgedRow``. The attribute
    ``extras`` is stored separately.

    Attributes:
        line: the line number where the row begins, counted from 1. For a request, ``line`` is the
            member's position in the request.
        email: the normalised address, or an empty string if the address is invalid or the row is a
            duplicate.
        paid_expiry: when the paid tier ends, ``CLEARED`` to remove the member's end date, or
            ``None`` if the row states no end.
        opt_out: the row's status if the row is an opt-out (unsubscribed, cleaned, bounced or
            complained), otherwise ``None``.
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
        """Return whether the row is rejected and also keeps other rows from adding the person."""
        return self.code is not None and bool(self.email)

    @property
    def strictness(self) -> int:
        return STRICTNESS[SuppressionStatus(self.opt_out or SuppressionStatus.WANTED)]


def reject_row(row: MemberRow | RejectedRecord | JudgedRow, code: str, reason: str) -> JudgedRow:
    return JudgedRow(line=row.line, code=code, reason=reason, cells=row.cells)


def encode_rows(rows: Sequence[JudgedRow]) -> bytes:
    """Encode validated rows as the content of a stored chunk. Fields, tags and consent claims are
    encoded separately, because only a few rows contain them.
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
