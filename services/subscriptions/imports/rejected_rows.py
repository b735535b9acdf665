"""The rows that weren't added, with the reasons, as a CSV file for the owner to correct."""

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

# The columns after those of the file.
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


def rejects_csv(
    rows: Sequence[JudgedRow],
    found: Sequence[str],
    left_out: Mapping[int, Sequence[str]],
    width: int,
) -> bytes:
    """The CSV lines of the rows that were not added, or not whole, with their codes and reasons.

    Args:
        found: each row's verdict.
        left_out: sentences on the values that rows were taken over without, by the rows' numbers.
        width: the number of columns in the header. Cells beyond it come after the added columns.
    """
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    for number, (row, verdict) in enumerate(zip(rows, found, strict=True)):
        told = left_out.get(number, ())
        if verdict == ADDED and not told:
            continue
        if row.code is not None:
            code, reason = row.code, row.reason or ""
        else:
            code, reason = REASONS.get(verdict, (_LEFT_OUT, "Some of its values are left out:"))
        # The reasons of ours begin no formula; one about a row of the file may quote the file.
        if told or row.code is not None:
            reason = guard_foreign_cell(" ".join([reason, *told]))
        cells = guard_foreign_cells(row.cells)
        cells += [""] * (width - len(cells))
        writer.writerow([*cells[:width], row.line, code, reason, *cells[width:]])
    return zlib.compress(text.getvalue().encode(errors="replace"), level=1)


def rejects_name(prefix: str, number: int) -> str:
    """The name with which the rows of one chunk that were not added are encrypted."""
    return f"{prefix}/not-added/{number}"


def header_line(header: Sequence[str]) -> bytes:
    text = io.StringIO()
    cells = *map(guard_foreign_cell, header), *ADDED_COLUMNS
    csv.writer(text, quoting=csv.QUOTE_ALL).writerow(cells)
    return text.getvalue().encode(errors="replace")


def header_of(task: MemberImport) -> list[str]:
    """The columns of the file; none before its job has opened it."""
    found: list[str] = (task.description or {}).get("header", [])
    return found


def stream_rejects(resources: Resources, import_id: int) -> Iterator[bytes]:
    """Return a CSV of the rows that haven't been imported, one chunk at a time.

    Each chunk has a transaction of its own, since the client may read slowly. Raises
    ``import.errors_gone`` before the first piece when the import's files were removed.
    """
    with resources.unit_of_work() as uow:
        task = uow.session.get(MemberImport, import_id)
        is_gone = task is None or task.files_removed_at is not None
        if task is None or is_gone or accounts.get(uow, task.user_id).erased_at is not None:
            raise IMPORT_ERRORS_GONE()
    prefix, key = task.object_prefix, bulk_files.data_key(resources, task)

    def pieces() -> Iterator[bytes]:
        # Without a byte-order mark, Excel would open the file as Windows-1252.
        yield codecs.BOM_UTF8 + header_line(header_of(task))
        chunks = select(ImportChunk).where(ImportChunk.import_id == import_id)
        number = -1
        while True:
            query = chunks.where(ImportChunk.number > number).order_by(ImportChunk.number).limit(1)
            with resources.unit_of_work() as uow:
                chunk = uow.session.scalar(query)
            if chunk is None:
                return
            number = chunk.number
            yield zlib.decompress(unseal(chunk.not_added, key, rejects_name(prefix, number)))

    return pieces()
