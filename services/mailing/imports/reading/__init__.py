"""Reads files of members row by row, whichever product or person wrote them."""

from services.mailing.imports.mapping.rows import MemberRow, RejectedRecord, SuppressionStatus
from services.mailing.imports.reading.reader import MemberReader, open_rows
from services.mailing.imports.reading.sources import RangedFile

__all__ = [
    "MemberReader",
    "MemberRow",
    "RangedFile",
    "RejectedRecord",
    "SuppressionStatus",
    "open_rows",
]
