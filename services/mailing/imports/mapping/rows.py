"""The rows that a reader of files yields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from services.mailing.attributes.field_values import FieldValue


class SuppressionStatus(StrEnum):
    """Whether the file says that the person gets mail, or why they get none."""

    WANTED = "wanted"
    UNSUBSCRIBED = "unsubscribed"
    CLEANED = "cleaned"
    BOUNCED = "bounced"
    COMPLAINED = "complained"


class RowExtras(NamedTuple):
    """What a row says of a member beyond name, tier and status. Most files have none of it.

    Attributes:
        fields: values by the field's id as text.
        tags: names of tags, none of them twice.
        joined_at: when the person joined the list that the file comes from, in ISO 8601.
        claim: what the file says of the person's consent, by the name of each part.
        left_out: a sentence for each value that could not be taken over.
    """

    fields: Mapping[str, FieldValue]
    tags: Sequence[str]
    joined_at: str | None
    claim: Mapping[str, str]
    left_out: Sequence[str]


class MemberRow(NamedTuple):
    """One member as the file names them. The address is trimmed, but not yet checked.

    Attributes:
        line: the physical line where the record begins, from 1.
        tier: free, silver or gold; ``None`` when the file names none.
        cells: the original columns in the order of the header; a record may have fewer or more.
    """

    line: int
    email: str
    name: str
    tier: str | None
    paid_expiry: datetime | None
    suppression: SuppressionStatus
    cells: Sequence[str]
    extras: RowExtras | None = None

    @property
    def left(self) -> bool:
        return self.suppression is not SuppressionStatus.WANTED


class RejectedRecord(NamedTuple):
    """A record that is not imported, and why. ``cells`` are those that could be read."""

    line: int
    code: str
    reason: str
    cells: Sequence[str]


@dataclass(frozen=True)
class FileDescription:
    """The recognised form of a file.

    Attributes:
        container: plain, gzip or zip.
        format: csv or jsonl.
        header_line: ``None`` when the file has no header.
        product: the product whose export the file is, if the header shows it.
        columns: each role, with the names of the columns that have it.
    """

    container: str
    format: str
    encoding: str
    delimiter: str | None
    header_line: int | None
    product: str | None
    columns: Mapping[str, Sequence[str]]
