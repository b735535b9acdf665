"""Copies a chunk's rows into temporary tables, in order to compare the rows with stored data."""

import hashlib
import io
from collections.abc import Sequence
from typing import cast

import psycopg2
import psycopg2.extensions
from sqlalchemy import text

from core import ids
from core.errors import TransientError
from core.telemetry.statement_spans import statement_span
from services.subscriptions.imports.judged_rows import CLEARED, JudgedRow
from services.subscriptions.members import opt_out_checks
from storage.unit_of_work import UnitOfWork

NULL = "\\N"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": None})
_STAGED = """
    number int, email text, name text, tier text, paid_expiry timestamptz, clears_expiry boolean,
    has_left boolean, is_withheld boolean, fresh_id bigint
"""
_STAGED_DIGESTS = "number int, digest bytea, is_current boolean"
_STAGED_EXTRAS = "number int, fields jsonb, tag_ids bigint[], joined_at timestamptz, origin jsonb"
_JUDGED = """
    number int, email text, name text, tier text, paid_expiry timestamptz, clears_expiry boolean,
    user_id bigint, is_new_person boolean, subscription_id bigint, verdict text,
    wants_mail boolean, is_updated boolean, drops_expiry boolean
"""


def name_table(name: str, columns: str) -> str:
    """Return a name that depends on the columns, because with a connection pooler, processes of two
    releases can share a database session and its temporary tables.
    """
    return f"{name}_{hashlib.sha256(columns.encode()).hexdigest()[:8]}"


STAGED = name_table("staged", _STAGED)
STAGED_DIGESTS = name_table("staged_digests", _STAGED_DIGESTS)
STAGED_EXTRAS = name_table("staged_extras", _STAGED_EXTRAS)
JUDGED = name_table("judged", _JUDGED)
_COLUMNS = {
    STAGED: _STAGED,
    STAGED_DIGESTS: _STAGED_DIGESTS,
    STAGED_EXTRAS: _STAGED_EXTRAS,
    JUDGED: _JUDGED,
}
_TABLES = ";".join(
    f"CREATE TEMP TABLE IF NOT EXISTS {name} ({columns}) ON COMMIT DELETE ROWS"
    for name, columns in _COLUMNS.items()
)


def escape_value(value: str) -> str:
    return value.translate(_ESCAPES)


def format_rows(rows: Sequence[JudgedRow]) -> str:
    new_ids = ids.neighbouring_ids(len(rows))
    lines = []
    for number, row in enumerate(rows):
        if row.code is not None and not row.is_withheld:
            continue
        # A normalised address contains no character that must be escaped for COPY.
        is_plain = "\\" not in row.name and row.name.isprintable()
        name = row.name if is_plain else escape_value(row.name)
        lines.append(
            f"{number}\t{row.email}\t{name}\t{row.tier or NULL}\t{row.paid_expiry or NULL}\t"
            f"{'t' if row.paid_expiry == CLEARED else 'f'}\t"
            f"{'t' if row.opt_out else 'f'}\t{'f' if row.code is None else 't'}\t"
            f"{new_ids[number]}\n"
        )
    return "".join(lines)


def copy_rows(uow: UnitOfWork, lines: str) -> None:
    """Copy rows in COPY format into the temporary table STAGED."""
    uow.session.execute(text(_TABLES))
    copy_lines(uow, STAGED, lines)


def copy_digests(uow: UnitOfWork, rows: Sequence[JudgedRow], *, all_rows: bool) -> None:
    """Copy the digests of the rows' addresses to the database, to compare them with opt-outs.

    Each address has one digest per key in the keyring, including retired keys. If ``all_rows`` is
    false, digests are copied only for opt-outs.
    """
    digests_of = opt_out_checks.create_address_digester(uow.settings.keyring)
    lines = (
        f"{number}\t\\\\x{digest.hex()}\t{'f' if older else 't'}\n"
        for number, row in enumerate(rows)
        if row.code is None and (all_rows or row.opt_out)
        for older, digest in enumerate(digests_of(row.email))
    )
    digest_lines = "".join(lines)
    if digest_lines:
        copy_lines(uow, STAGED_DIGESTS, digest_lines)
        # Update the statistics of both tables, so that Postgres can plan the join of STAGED and
        # STAGED_DIGESTS.
        uow.session.execute(text(f"ANALYZE {STAGED}, {STAGED_DIGESTS}"))


def copy_lines(uow: UnitOfWork, table: str, lines: str) -> None:
    connection = cast("psycopg2.extensions.connection", uow.session.connection().connection)
    statement = f"COPY {table} FROM STDIN"
    try:
        with statement_span(statement), connection.cursor() as cursor:
            cursor.copy_expert(statement, io.StringIO(lines))
    except psycopg2.DatabaseError as error:
        # COPY bypasses SQLAlchemy, so SQLAlchemy doesn't translate the driver's exceptions. If the
        # connection breaks during COPY, the driver raises a ``DatabaseError`` without an error
        # code.
        if isinstance(error, psycopg2.OperationalError) or error.pgcode is None:
            raise TransientError(f"the database: {type(error).__name__}") from error
        raise
