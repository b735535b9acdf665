"""Files of members, as other products and people write them, read row by row."""

from services.mailing.imports.mapping.rows import (
    FileDescription,
    MemberRow,
    RejectedRecord,
    SuppressionStatus,
)
from services.mailing.imports.reading.reader import MemberReader, open_rows
from services.mailing.imports.reading.sources import RangedFile, RangeReader, Source

__all__ = [
    "FileDescription",
    "MemberReader",
    "MemberRow",
    "RangeReader",
    "RangedFile",
    "RejectedRecord",
    "Source",
    "SuppressionStatus",
    "open_rows",
]
