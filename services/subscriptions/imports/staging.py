"""The rows that were not added and why, as CSV that the owner can mend and upload again."""

import codecs
import csv
import hashlib
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import psycopg2
import psycopg2.extensions
from sqlalchemy import select, text

from core import ids
from core.errors import TransientError
from core.errors.access import QUOTA_EXCEEDED
from core.errors.imports import IMPORT_ERRORS_GONE
from core.errors.mailing import MEMBER_DENIED
from core.telemetry.statement_spans import statement_span
from models import ImportChunk, MemberImport
from services.accounts import accounts
from services.subscriptions import bulk_files
from services.subscriptions.export_sheets import guard_foreign_cell, guard_foreign_cells
from services.subscriptions.imports.endings import (
    CLEARED,
    DUPLICATE,
    DUPLICATE_CODE,
    JudgedRow,
)
from services.subscriptions.members import opt_outs
from storage.encryption import unseal
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

ADDED, ALREADY, OPTED_OUT, LEFT = "added", "already", "opted_out", "left"
OVER_QUOTA, DENIED = "over_quota", "denied"
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


_STAGED = """
    number int, email text, name text, tier text, paid_expiry timestamptz, clears_expiry boolean,
    has_left boolean, is_withheld boolean, fresh_id bigint
"""
_STAGED_DIGESTS = "number int, digest bytea, is_current boolean"
_STAGED_EXTRAS = "number int, fields jsonb, tag_ids bigint[], joined_at timestamptz"
_JUDGED = """
    number int, email text, name text, tier text, paid_expiry timestamptz, clears_expiry boolean,
    user_id bigint, is_new_person boolean, subscription_id bigint, verdict text,
    wants_mail boolean, is_updated boolean, drops_expiry boolean
"""


def name_of(table: str, columns: str) -> str:
    """A name that the table has with these columns alone.

    A pool of connections lets processes of two releases use one session after another, and with it
    the tables that the first of them made.
    """
    return f"{table}_{hashlib.sha256(columns.encode()).hexdigest()[:8]}"


_COLUMNS = {
    (STAGED := name_of("staged", _STAGED)): _STAGED,
    (STAGED_DIGESTS := name_of("staged_digests", _STAGED_DIGESTS)): _STAGED_DIGESTS,
    (STAGED_EXTRAS := name_of("staged_extras", _STAGED_EXTRAS)): _STAGED_EXTRAS,
    (JUDGED := name_of("judged", _JUDGED)): _JUDGED,
}
_TABLES = ";".join(
    f"CREATE TEMP TABLE IF NOT EXISTS {name} ({columns}) ON COMMIT DELETE ROWS"
    for name, columns in _COLUMNS.items()
)
NULL = "\\N"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": None})


def escaped(value: str) -> str:
    """A value as COPY reads it."""
    return value.translate(_ESCAPES)


def copy_lines(rows: Sequence[JudgedRow]) -> str:
    """Return the rows in the format of PostgreSQL's COPY, except rows that affect nobody."""
    fresh = ids.neighbouring_ids(len(rows))
    lines = []
    for number, row in enumerate(rows):
        if row.code is not None and not row.is_withheld:
            continue
        # A normalised address has no character that COPY would read as something else.
        is_plain = "\\" not in row.name and row.name.isprintable()
        name = row.name if is_plain else escaped(row.name)
        lines.append(
            f"{number}\t{row.email}\t{name}\t{row.tier or NULL}\t{row.paid_expiry or NULL}\t"
            f"{'t' if row.paid_expiry == CLEARED else 'f'}\t"
            f"{'t' if row.left else 'f'}\t{'f' if row.code is None else 't'}\t{fresh[number]}\n"
        )
    return "".join(lines)


def copy_rows(uow: UnitOfWork, lines: str) -> None:
    """Make the tables, once a connection, and copy the rows: each transaction begins with none."""
    uow.session.execute(text(_TABLES))
    copy(uow, STAGED, lines)


def copy_digests(uow: UnitOfWork, rows: Sequence[JudgedRow], *, all_rows: bool) -> None:
    """The digests under which an opt-out of each address may be stored, the current key's first.

    Without ``all_rows`` only of people who left, for whom opt-outs are written.
    """
    digests_of = opt_outs.address_digester(uow.settings.keyring)
    lines = (
        f"{number}\t\\\\x{digest.hex()}\t{'f' if older else 't'}\n"
        for number, row in enumerate(rows)
        if row.code is None and (all_rows or row.left)
        for older, digest in enumerate(digests_of(row.email))
    )
    copied = "".join(lines)
    if copied:
        copy(uow, STAGED_DIGESTS, copied)
        # For the joins of the two.
        uow.session.execute(text(f"ANALYZE {STAGED}, {STAGED_DIGESTS}"))


def copy(uow: UnitOfWork, table: str, lines: str) -> None:
    connection = cast("psycopg2.extensions.connection", uow.session.connection().connection)
    statement = f"COPY {table} FROM STDIN"
    try:
        with statement_span(statement), connection.cursor() as cursor:
            cursor.copy_expert(statement, io.StringIO(lines))
    except psycopg2.DatabaseError as error:
        # SQLAlchemy takes no part in COPY, so these are the driver's exceptions. The driver has no
        # class for a connection that is cut in the middle; its error has no code.
        if isinstance(error, psycopg2.OperationalError) or error.pgcode is None:
            raise TransientError(f"the database: {type(error).__name__}") from error
        raise
