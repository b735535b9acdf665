"""Formats the rows that weren't imported as a CSV file, so that the owner can correct the rows."""

import codecs
import csv
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import select

from core.errors.access import QUOTA_EXCEEDED
from core.errors.imports import IMPORT_ERRORS_GONE
from core.errors.mailing import MEMBER_DENIED
from models import ImportChunk, MemberImport
from services.accounts import accounts
from services.subscriptions import bulk_files
from services.subscriptions.export_sheets import guard_foreign_cell, guard_foreign_cells
from services.subscriptions.imports.judged_rows import DUPLICATE_CODE, JudgedRow
from services.subscriptions.imports.verdicts import (
    ADDED,
    ALREADY,
    DENIED,
    DUPLICATE,
    LEFT,
    OPTED_OUT,
    OVER_QUOTA,
)
from storage.encryption import unseal
from storage.resources import Resources

# The columns that the file of rejected rows has after the columns of the imported file.
ADDED_COLUMNS = ("line", "code", "reason")
REASONS = {
    ALREADY: ("member.already", "The person is an active member."),
    OPTED_OUT: ("member.opted_out", "The person opted out; only they can come back."),
    OVER_QUOTA: (QUOTA_EXCEEDED.code, "The plan has no room for more members."),
    DENIED: (MEMBER_DENIED.code, "A deny list has the address or its domain."),
    DUPLICATE: (DUPLICATE_CODE, "Another row of the file names the same member."),
    LEFT: ("member.left", "The file says that this person gets no mail."),
}
_LEFT_OUT = "row.left_out"


def format_csv_lines(
    rows: Sequence[JudgedRow],
    verdicts: Sequence[str],
    left_out: Mapping[int, Sequence[str]],
    width: int,
) -> bytes:
    """Return compressed CSV lines of rows that were added only in part or not at all.

    Args:
        left_out: maps row numbers to sentences about the omitted values of the rows.
        width: the number of columns in the header. Cells beyond the header come after the columns
            in ``ADDED_COLUMNS``.
    """
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    for number, (row, verdict) in enumerate(zip(rows, verdicts, strict=True)):
        sentences = left_out.get(number, ())
        if verdict == ADDED and not sentences:
            continue
        if row.code is not None:
            code = row.code
            reason = row.reason or ""
        else:
            code, reason = REASONS.get(verdict, (_LEFT_OUT, "Some of its values are left out:"))
        # Guard a reason that quotes a cell, because a spreadsheet could interpret the reason as a
        # formula.
        if sentences or row.code is not None:
            reason = guard_foreign_cell(" ".join([reason, *sentences]))
        cells = guard_foreign_cells(row.cells)
        cells += [""] * (width - len(cells))
        writer.writerow([*cells[:width], row.line, code, reason, *cells[width:]])
    return zlib.compress(text.getvalue().encode(errors="replace"), level=1)


def get_encryption_name(prefix: str, number: int) -> str:
    """Return the encryption context for the rejected rows of one chunk."""
    return f"{prefix}/not-added/{number}"


def format_header_line(header: Sequence[str]) -> bytes:
    text = io.StringIO()
    cells = *map(guard_foreign_cell, header), *ADDED_COLUMNS
    csv.writer(text, quoting=csv.QUOTE_ALL).writerow(cells)
    return text.getvalue().encode(errors="replace")


def get_header(task: MemberImport) -> list[str]:
    """Return the names of the file's columns, or an empty list until the file has been opened."""
    header: list[str] = (task.description or {}).get("header", [])
    return header


def stream_rejected_rows(resources: Resources, import_id: int) -> Iterator[bytes]:
    """Return a CSV file of the rows that weren't imported, one chunk at a time.

    Each chunk is read in a separate transaction, because the client may read slowly. Raises
    ``import.errors_gone`` if the stored rows of the import have been removed.
    """
    with resources.unit_of_work() as uow:
        task = uow.session.get(MemberImport, import_id)
        is_gone = task is None or task.files_removed_at is not None
        if task is None or is_gone or accounts.get_user(uow, task.user_id).erased_at is not None:
            raise IMPORT_ERRORS_GONE()
    prefix = task.object_prefix
    key = bulk_files.unwrap_key(resources, task)

    def stream_pieces() -> Iterator[bytes]:
        # Write a byte-order mark first, because Excel would otherwise open the file as
        # Windows-1252.
        yield codecs.BOM_UTF8 + format_header_line(get_header(task))
        chunks = select(ImportChunk).where(ImportChunk.import_id == import_id)
        number = -1
        while True:
            query = chunks.where(ImportChunk.number > number).order_by(ImportChunk.number).limit(1)
            with resources.unit_of_work() as uow:
                chunk = uow.session.scalar(query)
            if chunk is None:
                return
            number = chunk.number
            yield zlib.decompress(unseal(chunk.not_added, key, get_encryption_name(prefix, number)))

    return stream_pieces()
