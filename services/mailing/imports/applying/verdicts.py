"""What became of each row that was not added, as CSV that can be mended and uploaded again."""

import csv
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence

from sqlalchemy import select

from core.refusals.imports import IMPORT_ERRORS_GONE
from models import ImportChunk, MemberImport
from services.mailing.imports.entries import JudgedRow
from services.mailing.spreadsheets import escape_foreign_cell
from storage.resources import Resources

# Beside the original columns.
ADDED_COLUMNS = ("line", "code", "reason")

REASONS = {
    "already": ("member.already", "The person is an active member."),
    "opted_out": ("member.opted_out", "The person opted out; only they can come back."),
    "left": ("member.left", "The file says that this person gets no mail."),
}


def rejects_csv(lines: Iterable[tuple[JudgedRow, str, str]], width: int) -> bytes:
    """The CSV lines of rows that were not added, each with its code and reason.

    ``width``: of the header. What a row has beyond it comes after our columns.
    """
    text = io.StringIO()
    csv.writer(text).writerows(_line(*each, width) for each in lines)
    return zlib.compress(text.getvalue().encode(errors="replace"), level=1)


def _line(entry: JudgedRow, code: str, reason: str, width: int) -> list[str | int]:
    cells = [*map(escape_foreign_cell, entry.cells)]
    if len(cells) == width:
        return [*cells, entry.line, code, escape_foreign_cell(reason)]
    cells += [""] * (width - len(cells))
    return [*cells[:width], entry.line, code, escape_foreign_cell(reason), *cells[width:]]


def header_line(header: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow([*map(escape_foreign_cell, header), *ADDED_COLUMNS])
    return text.getvalue().encode(errors="replace")


def header_of(task: MemberImport) -> list[str]:
    """The columns of the file, none before it has been looked at."""
    found: list[str] = (task.description or {}).get("header", [])
    return found


def stream_rejects(resources: Resources, import_id: int) -> Iterator[bytes]:
    """The CSV of all rows that were not added so far, in the order of the file.

    A transaction for each chunk: whoever takes it in may take their time. Raises
    ``import.errors_gone`` before the first piece when the file is older than its time.
    """
    with resources.unit_of_work() as uow:
        task = uow.session.get(MemberImport, import_id)
    if task is None or task.files_removed_at is not None:
        raise IMPORT_ERRORS_GONE()
    return _stream(resources, task)


def _stream(resources: Resources, task: MemberImport) -> Iterator[bytes]:
    yield header_line(header_of(task))
    number = -1
    while True:
        query = (
            select(ImportChunk)
            .where(ImportChunk.import_id == task.id, ImportChunk.number > number)
            .order_by(ImportChunk.number)
            .limit(1)
        )
        with resources.unit_of_work() as uow:
            chunk = uow.session.scalar(query)
        if chunk is None:
            return
        number = chunk.number
        yield zlib.decompress(chunk.not_added)
