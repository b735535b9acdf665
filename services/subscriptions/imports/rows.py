"""Defines the rows that are read from an imported file."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from services.subscriptions.fields import FieldValue


class SuppressionStatus(StrEnum):
    """The subscription status that a row of an imported file states for a person."""

    WANTED = "wanted"
    MAY_PASS = "may_pass"  # noqa: S105 - a name
    NOT_SUBSCRIBED = "not_subscribed"
    UNKNOWN = "unknown"
    UNSUBSCRIBED = "unsubscribed"
    CLEANED = "cleaned"
    BOUNCED = "bounced"
    COMPLAINED = "complained"


# The statuses that make a row an opt-out.
OPT_OUTS = frozenset(
    {
        SuppressionStatus.UNSUBSCRIBED,
        SuppressionStatus.CLEANED,
        SuppressionStatus.BOUNCED,
        SuppressionStatus.COMPLAINED,
    }
)
# Maps each status to a number, which is higher for a stricter status. If several rows have the same
# address, only the row with the strictest status is applied.
STRICTNESS = {
    SuppressionStatus.WANTED: 0,
    SuppressionStatus.MAY_PASS: 1,
    SuppressionStatus.NOT_SUBSCRIBED: 1,
    SuppressionStatus.UNKNOWN: 2,
    SuppressionStatus.UNSUBSCRIBED: 3,
    SuppressionStatus.CLEANED: 4,
    SuppressionStatus.BOUNCED: 5,
    SuppressionStatus.COMPLAINED: 6,
}


class AbsentCell(str):
    """The placeholder for a cell that is missing from a record.

    Unlike an empty cell in the file, the placeholder for a missing cell doesn't clear the stored
    value.
    """

    __slots__ = ()


ABSENT = AbsentCell()


class OmittedValue(NamedTuple):
    """A value that isn't imported, although the other values in its row are imported.

    ``rule`` is the rule that the value breaks. ``cell`` is ``None`` if the rule doesn't concern the
    text of one cell.
    """

    column: str
    rule: str
    cell: str | None = None

    def __str__(self) -> str:
        return f"{self.column}: {self.rule}" + ("" if self.cell is None else f", not {self.cell!r}")


class RowExtras(NamedTuple):
    """The extras of a row, which are all values except the address, name, tier and status.

    Attributes:
        fields: maps the id of each field, as text, to the value of the field.
        tags: the distinct tag names in the row.
        joined_at: the time at which the person joined the list that the file comes from, in ISO
            8601.
        claim: maps each part of the person's consent, such as ``ip``, to the text in the file.
        left_out: the values of the row that could not be imported.
    """

    fields: Mapping[str, FieldValue]
    tags: Sequence[str]
    joined_at: str | None
    claim: Mapping[str, str]
    left_out: Sequence[OmittedValue]


NO_EXTRAS = RowExtras({}, (), None, {}, ())


class RowProblem(NamedTuple):
    """The error code and the error message for a row that isn't imported."""

    code: str
    reason: str


class MemberRow(NamedTuple):
    """A row of an imported file that has an e-mail address.

    The address in a member row is trimmed, but not validated.

    Attributes:
        line: the number of the physical line where the record begins, counted from 1.
        tier: the tier free, silver or gold, or ``None`` if the file names no tier.
        cells: the original cells in the order of the header. A record may have fewer or more cells
            than the header.
        problem: the reason why the row isn't imported, or ``None``. If several rows have the same
            address, only the strictest row is used, even if the strictest row has a problem.
        clears_expiry: whether an empty cell in the expiry column of the paid tier removes the
            stored expiry.
    """

    line: int
    email: str
    name: str
    tier: str | None
    paid_expiry: datetime | None
    suppression: SuppressionStatus
    cells: Sequence[str]
    extras: RowExtras | None = None
    problem: RowProblem | None = None
    clears_expiry: bool = False

    @property
    def is_opt_out(self) -> bool:
        return self.suppression in OPT_OUTS


class RejectedRecord(NamedTuple):
    """A record of an imported file that can't be imported, with the reason.

    ``cells`` contains those cells of the record that could be read.
    """

    line: int
    code: str
    reason: str
    cells: Sequence[str]
