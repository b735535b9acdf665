"""Defines the data types for the rows of an imported file."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from services.subscriptions.fields import FieldValue


class SuppressionStatus(StrEnum):
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
# Ranks the statuses. A higher rank means a more restrictive status, such as the status of an
# opt-out. If several rows have the same address, only the row with the most restrictive status is
# applied.
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
    """A placeholder for a missing cell of a record that has fewer cells than the header.

    An empty cell clears the member's stored value, but a missing cell doesn't.
    """

    __slots__ = ()


ABSENT = AbsentCell()


class TypedCell(str):
    """The text of a cell that a workbook stores as a number or a date, and not as text.

    The text has a fixed notation, which reveals nothing about the notation of text cells.
    """

    __slots__ = ()


class OmittedValue(NamedTuple):
    """A value that isn't imported, although the rest of its row is imported.

    ``cell`` is the text that breaks the rule, or ``None`` if the rule isn't about a single cell.
    """

    column: str
    rule: str
    cell: str | None = None

    def __str__(self) -> str:
        return f"{self.column}: {self.rule}" + ("" if self.cell is None else f", not {self.cell!r}")


class RowExtras(NamedTuple):
    """The fields, tags, join date and consent that one row of a file contains.

    Attributes:
        fields: maps field ids, as text, to the person's values.
        joined_at: when the person joined the list from which the file was exported, in ISO 8601.
        claim: maps each detail of the consent, such as ``ip``, to the text in the file. The keys of
            UTM tags and referrers begin with ``origin.``, as in ``origin.utm_source``.
    """

    fields: Mapping[str, FieldValue]
    tags: Sequence[str]
    joined_at: str | None
    claim: Mapping[str, str]
    left_out: Sequence[OmittedValue]


NO_EXTRAS = RowExtras({}, (), None, {}, ())


class RowProblem(NamedTuple):
    code: str
    reason: str


class MemberRow(NamedTuple):
    """A row with an e-mail address in an imported file.

    ``email`` contains the trimmed address, which hasn't been validated.

    Attributes:
        cells: the unchanged cells of the row, in the order of the header. A row may have more or
            fewer cells than the header.
        problem: the reason why the row isn't imported, or ``None`` if the row is valid. If a row
            has a problem, rows with the same address and a less restrictive status aren't imported
            either.
        clears_expiry: whether to remove the stored end of the paid tier, because the cell in the
            row is empty.
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
    line: int
    code: str
    reason: str
    cells: Sequence[str]
