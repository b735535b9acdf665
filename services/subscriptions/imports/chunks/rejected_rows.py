"""Writes the rows that weren't imported to a CSV file, so that the owner can correct them."""

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
from services.subscriptions.formula_guard import guard_foreign_cell, guard_foreign_cells
from services.subscriptions.imports.chunks.verdicts import (
    ADDED,
    ALREADY,
    DENIED,
    DUPLICATE,
    LEFT,
    OPTED_OUT,
    OVER_QUOTA,
)
from services.subscriptions.imports.judged_rows import DUPLICATE_CODE, JudgedRow
from storage.encryption import unseal
from storage.resources import Resources

# The columns that are added to the columns of the imported file.
ADDED_COLUMNS = ("line", "code", "reason")
REASONS = {
    ALREADY: ("member.already", "The person is already an active member."),
    OPTED_OUT: ("member.opted_out", "The person opted out. Only the person can subscribe again."),
    OVER_QUOTA: (QUOTA_EXCEEDED.code, "The limit of members in your plan is reached."),
    DENIED: (MEMBER_DENIED.code, "The address or its domain is on a deny list."),
    DUPLICATE: (DUPLICATE_CODE, "Another row of the file contains the same member."),
    LEFT: ("member.left", "The file says that this person must not get mail."),
}
_LEFT_OUT = "row.left_out"


def format_csv_lines(
    rows: Sequence[JudgedRow],
    verdicts: Sequence[str],
    left_out: Mapping[int, Sequence[str]],
    width: int,
) -> bytes:
    """Return compressed CSV lines with the rows that weren't imported completely.

    Args:
        width: the number of columns in the header of the file. If a row has more cells than the
            header, the additional cells are written after ``ADDED_COLUMNS``.
    """
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    for number, (row, verdict) in enumerate(zip(rows, verdicts, strict=True)):
        sentences = left_out.get(number, ())
        if verdict == ADDED and not sentences:
            continue
        code, reason = describe_row(row, verdict)
        # Escape a reason that quotes a cell, because a spreadsheet could interpret the reason as a
        # formula.
        if sentences or row.code is not None:
            reason = guard_foreign_cell(" ".join([reason, *sentences]))
        cells = guard_foreign_cells(row.cells)
        cells += [""] * (width - len(cells))
        writer.writerow([*cells[:width], row.line, code, reason, *cells[width:]])
    return zlib.compress(text.getvalue().encode(errors="replace"), level=1)


def describe_row(row: JudgedRow, verdict: str) -> tuple[str, str]:
    if row.code is not None:
        return row.code, row.reason or ""
    return REASONS.get(verdict, (_LEFT_OUT, "Some values were not imported:"))


def get_encryption_name(prefix: str, number: int) -> str:
    return f"{prefix}/not-added/{number}"


def format_header_line(header: Sequence[str]) -> bytes:
    text = io.StringIO()
    cells = *map(guard_foreign_cell, header), *ADDED_COLUMNS
    csv.writer(text, quoting=csv.QUOTE_ALL).writerow(cells)
    return text.getvalue().encode(errors="replace")


def get_header(task: MemberImport) -> list[str]:
    header: list[str] = (task.description or {}).get("header", [])
    return header


def stream_rejected_rows(resources: Resources, import_id: int) -> Iterator[bytes]:
    """Return the content of the CSV file with the rows that weren't imported, in parts.

    The rows of each chunk are read in a separate transaction, because the client may download the
    file slowly. Raises ``import.errors_gone`` if the import's rejected rows were removed.
    """
    with resources.unit_of_work() as uow:
        task = uow.session.get(MemberImport, import_id)
        is_gone = task is None or task.files_removed_at is not None
        if task is None or is_gone or accounts.get_owner(uow, task.user_id).erased_at is not None:
            raise IMPORT_ERRORS_GONE()
    prefix = task.object_prefix
    key = bulk_files.unwrap_key(resources, task)

    def stream_pieces() -> Iterator[bytes]:
        # Write a byte-order mark first, so that Excel decodes the file as UTF-8.
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
