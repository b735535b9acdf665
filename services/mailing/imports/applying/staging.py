"""The rows of a chunk on their way into temporary tables of the transaction, by COPY."""

import io
from collections.abc import Sequence
from typing import cast

import psycopg2
import psycopg2.extensions
from sqlalchemy import text

from core import ids
from core.errors import TransientError
from core.keyring import Keyring
from services.mailing.imports.entries import JudgedRow
from services.mailing.subscriptions import opt_outs
from storage.unit_of_work import UnitOfWork


def make_tables(uow: UnitOfWork) -> None:
    """Made once a connection, empty at the start of each transaction."""
    uow.session.execute(text(_TABLES))


def analyze(uow: UnitOfWork) -> None:
    uow.session.execute(text("ANALYZE staged, staged_digests"))


def copy_lines(entries: Sequence[JudgedRow]) -> str:
    """The rows that the list decides about, in the text format of Postgres' COPY."""
    fresh = ids.random_ids(len(entries))
    return "".join(
        # An address has nothing in it that COPY would read as something else.
        f"{number}\t{entry.email}\t{_escaped(entry.name)}\t{entry.tier or _NULL}\t"
        f"{entry.paid_expiry or _NULL}\t{'t' if entry.left else 'f'}\t{fresh[number]}\n"
        for number, entry in enumerate(entries)
        if entry.code is None
    )


def copy_rows(uow: UnitOfWork, lines: str) -> None:
    _copy(uow, "staged", lines)


def copy_digests(
    uow: UnitOfWork, keyring: Keyring, entries: Sequence[JudgedRow], *, everybody: bool
) -> None:
    """What an opt-out of each address may be kept under, the digest of the current key first."""
    digests_of = opt_outs.address_digester(keyring)
    lines = (
        f"{number}\t\\\\x{digest.hex()}\t{'f' if older else 't'}\n"
        for number, entry in enumerate(entries)
        if entry.code is None and (everybody or entry.left)
        for older, digest in enumerate(digests_of(entry.email))
    )
    _copy(uow, "staged_digests", "".join(lines))


def _copy(uow: UnitOfWork, table: str, lines: str) -> None:
    link = cast("psycopg2.extensions.connection", uow.session.connection().connection)
    try:
        with link.cursor() as cursor:
            cursor.copy_expert(f"COPY {table} FROM STDIN", io.StringIO(lines))
    except psycopg2.DatabaseError as error:
        # The driver's own exceptions, since SQLAlchemy has no part in this; a connection that is
        # cut in the middle has no class of its own among them.
        if isinstance(error, psycopg2.OperationalError) or error.pgcode is None:
            raise TransientError(f"the database: {type(error).__name__}") from error
        raise


_NULL = "\\N"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": None})


def _escaped(value: str) -> str:
    if "\\" not in value and value.isprintable():
        return value
    return value.translate(_ESCAPES)


_TABLES = """
CREATE TEMP TABLE IF NOT EXISTS staged (
    number int, email text, name text, tier text, paid_expiry timestamptz, has_left boolean,
    fresh_id bigint
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS staged_digests (
    number int, digest bytea, is_current boolean
) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS judged (
    number int, email text, name text, tier text, paid_expiry timestamptz, user_id bigint,
    is_new_person boolean, subscription_id bigint, verdict text, wants_mail boolean,
    is_updated boolean
) ON COMMIT DELETE ROWS;
"""
