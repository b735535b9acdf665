"""A row of an import that was judged without the database, as it is stored in a chunk."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import orjson

from services.subscriptions.imports.rows import STRICTNESS, LeftOut, RowExtras, SuppressionStatus

# The value of ``paid_expiry`` in a row that removes the stored end of the paid tier.
CLEARED = ""
DUPLICATE_CODE = "row.duplicate"
EARLIER_ROW_REASON = "The address came before in the same file."
STRICTER_ROW_REASON = "Another row of this address counts, because it is stricter."


class JudgedRow(NamedTuple):
    """A row of a file. A row with a ``code`` is not applied, for the ``reason`` given.

    A chunk stores rows by the order of these fields but the last.

    Attributes:
        line: the physical line where the row begins, from 1; in a request, the member's place.
        email: the normalised address. This attribute is empty if the address is invalid, or if
            another row with the same address is used instead.
        paid_expiry: the end of the paid tier. ``CLEARED`` removes the stored end. ``None`` means
            that the row doesn't state an end.
        left: the opt-out status in the file (unsubscribed, cleaned, bounced or complained), if any.
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

    @property
    def is_withheld(self) -> bool:
        """Return whether the row is rejected and also keeps other rows from adding the person."""
        return self.code is not None and bool(self.email)

    @property
    def strictness(self) -> int:
        """The rank of the row's status in ``STRICTNESS``. The row must not have a ``code``."""
        return STRICTNESS[SuppressionStatus(self.left or SuppressionStatus.WANTED)]


_STORED = itemgetter(slice(0, 9))


def encode(rows: Sequence[JudgedRow]) -> bytes:
    """The rows as a chunk stores them; few have extras, which stand apart."""
    extras = {str(at): tuple(row.extras) for at, row in enumerate(rows) if row.extras}
    return orjson.dumps({"rows": rows, "extras": extras}, default=_STORED)


def decode(data: bytes) -> list[JudgedRow]:
    found: Any = orjson.loads(data)
    rows = [JudgedRow(*row) for row in found["rows"]]
    for at, extras in found["extras"].items():
        values = RowExtras(*extras)
        values = values._replace(left_out=[LeftOut(*each) for each in values.left_out])
        rows[int(at)] = rows[int(at)]._replace(extras=values)
    return rows
