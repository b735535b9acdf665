"""The temporary tables into which a chunk is copied before it is judged."""

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
from services.subscriptions.members import opt_outs
from storage.unit_of_work import UnitOfWork

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


STAGED = name_of("staged", _STAGED)
STAGED_DIGESTS = name_of("staged_digests", _STAGED_DIGESTS)
STAGED_EXTRAS = name_of("staged_extras", _STAGED_EXTRAS)
JUDGED = name_of("judged", _JUDGED)
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
