"""What became of each row that was not added, as CSV that can be mended and uploaded again."""

import csv
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence

from sqlalchemy import select

from models import ImportChunk, MemberImport
from services.imports.entries import Entry
from services.spreadsheets import guarded
from storage.unit_of_work import UnitOfWork

# Beside the original columns.
OURS = ("line", "code", "reason")

REASONS = {
    "already": ("member.already", "The person is an active member."),
    "opted_out": ("member.opted_out", "The person opted out; only they can come back."),
    "left": ("member.left", "The file says that this person gets no mail."),
}


def pack(lines: Iterable[tuple[Entry, str, str]]) -> bytes:
    """The CSV lines of rows that were not added, each with its code and reason."""
    text = io.StringIO()
    csv.writer(text).writerows(
        [*map(guarded, entry.cells), entry.line, code, reason] for entry, code, reason in lines
    )
    return zlib.compress(text.getvalue().encode(errors="replace"), level=1)


def header_line(header: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow([*map(guarded, header), *OURS])
    return text.getvalue().encode()


def stream(uow: UnitOfWork, task: MemberImport) -> Iterator[bytes]:
    """The CSV of all rows that were not added so far, in the order of the file."""
    header = (task.description or {}).get("header", [])
    yield header_line(header)
    number = -1
    while True:
        query = (
            select(ImportChunk)
            .where(ImportChunk.import_id == task.id, ImportChunk.number > number)
            .order_by(ImportChunk.number)
            .limit(1)
        )
        chunk = uow.session.scalar(query)
        if chunk is None:
            return
        number = chunk.number
        yield zlib.decompress(chunk.not_added)
        uow.session.expunge(chunk)
