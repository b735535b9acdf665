from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class SuppressionStatus(StrEnum):
    """Whether the file says that this person gets mail, or why no more."""

    WANTED = "wanted"
    UNSUBSCRIBED = "unsubscribed"
    CLEANED = "cleaned"
    BOUNCED = "bounced"
    COMPLAINED = "complained"


class MemberRow(NamedTuple):
    """One member as the file has them. The address is trimmed, not yet judged.

    ``line`` is the physical line where the record begins, from 1. ``tier`` is free, silver, gold,
    or None where the file says nothing. ``columns`` are the cells in the order of the header; a
    record may have fewer or more.
    """

    line: int
    email: str
    name: str
    tier: str | None
    paid_expiry: datetime | None
    standing: SuppressionStatus
    columns: Sequence[str]

    @property
    def left(self) -> bool:
        return self.standing is not SuppressionStatus.WANTED


class RejectedRecord(NamedTuple):
    """A record that is not imported, and why. ``columns`` is what could be read of it."""

    line: int
    code: str
    reason: str
    columns: Sequence[str]


@dataclass(frozen=True)
class FileDescription:
    """What was recognised. ``columns`` maps each meaning to the names of the columns that have it.

    ``container`` is plain, gzip or zip; ``format`` is csv or jsonl; ``header_line`` is None where
    the file has no header; ``product`` is whose export it is, where that shows.
    """

    container: str
    format: str
    encoding: str
    delimiter: str | None
    header_line: int | None
    product: str | None
    columns: Mapping[str, Sequence[str]]
