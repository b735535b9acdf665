"""The rights of the application's role in the database: read and write rows, and nothing else.

The owner's role makes and changes tables (``pressroom migrate``). The application's role can't
alter, truncate or drop a table, switch a trigger off, or make a table that stays; what runs SQL in
its place can't either. Temporary tables are open to it: imports stage their rows in them.

The role also has the time limits of its sessions, which so hold through a pool of connections too.
"""

from contextlib import closing
from typing import cast

import psycopg2
import psycopg2.errors
import psycopg2.extensions
from sqlalchemy import URL, Connection, text
from sqlalchemy.exc import ProgrammingError

from core.errors.requests import DATABASE_UNUSABLE
from core.logging import get_logger
from storage.database import SESSION_DEFAULTS

log = get_logger(__name__)

_ROWS = "SELECT, INSERT, UPDATE, DELETE"
# To take the next number, and not to set one.
_NUMBERS = "USAGE, SELECT"
# On these tables the application has fewer rights. Tables that only grow are never rewritten, and a row on which money stands is never deleted: by a missing right, or by a trigger.
_LESS = {
    "alembic_version": "SELECT",
    "payment_order_transitions": "SELECT",
    "credit_entries": "SELECT, INSERT",
    # Maintenance deletes orders that were never paid or claimed, with what happened to them. Triggers refuse
    # to delete any other order, which has all four rights too.
    "payment_events": "SELECT, INSERT, DELETE",
    "payment_order_changes": "SELECT, INSERT, DELETE",
    "credit_accounts": "SELECT, INSERT, UPDATE",
    # Functions of the owner's delete old events, and raise the offset after a restore.
    "feed_events": "SELECT, INSERT",
    "feed_offsets": "SELECT",
    # Functions of the owner's shorten IP addresses, erase people and undo imports.
    "consent_entries": "SELECT, INSERT",
    "consent_claims": "SELECT, INSERT",
    "consent_wordings": "SELECT, INSERT",
    # An erased person's source is blanked. A function of the owner's deletes what is old enough.
    "events": "SELECT, INSERT, UPDATE (ip, user_agent)",
}

# Objects that an extension or another person put into the schema are left alone.
_TABLES_AND_SEQUENCES = text(
    "SELECT relname, oid::regclass::text, relkind = 'S' FROM pg_class"
    " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v', 'S')"
    " AND pg_has_role(relowner, 'USAGE')"
    " AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype = 'e')"
)
# They do with the owner's rights what the application may not do itself.
_OWNERS_FUNCTIONS = text(
    "SELECT oid::regprocedure::text FROM pg_proc"
    " WHERE pronamespace = 'public'::regnamespace AND prosecdef AND pg_has_role(proowner, 'USAGE')"
)
_MAY_DO_MORE = text(
    "SELECT rolsuper OR rolcreaterole OR has_schema_privilege(oid, 'public', 'CREATE') OR EXISTS ("
    "   SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    "   AND relkind = 'r' AND pg_has_role(pg_roles.oid, relowner, 'MEMBER'))"
    " FROM pg_roles WHERE rolname = :role"
)


def let_in(connection: Connection, login: URL) -> None:
    """Give the role of this login what it may do, and take away the rest; make it if it is missing.

    ``connection`` is the owner's. An installation with a single role for everything keeps it, and
    a warning is logged.
    """
    with connection.begin():
        owner = connection.scalar(text("SELECT current_user"))
        role = login.username or owner
        if role != owner:
            _make(connection, role, login.password)
            _grant(connection, connection.dialect.identifier_preparer.quote(role))
        if may_do_more(connection, role):
            log.warning("database.role_may_change_tables", role=role)
    _limit(connection, login.set(username=role))


def may_do_more(connection: Connection, role: str) -> bool:
    """Return whether the role may do more than read and write rows."""
    return bool(connection.scalar(_MAY_DO_MORE, {"role": role}))


def _make(connection: Connection, role: str, password: str | None) -> None:
    if connection.scalar(text("SELECT 1 FROM pg_roles WHERE rolname = :role"), {"role": role}):
        return
    may_make = text("SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user")
    if not connection.scalar(may_make):
        raise DATABASE_UNUSABLE(
            reason=f"there is no role {role}, and the role that migrates may not make it"
        )
    raw = cast("psycopg2.extensions.connection", connection.connection.dbapi_connection)
    # The server gets the verifier: statements may be logged there.
    verifier = password and psycopg2.extensions.encrypt_password(
        password, role, scope=raw, algorithm="scram-sha-256"
    )
    quoted = connection.dialect.identifier_preparer.quote(role)
    connection.exec_driver_sql(
        f"CREATE ROLE {quoted} LOGIN" + (" PASSWORD %(verifier)s" if verifier else ""),
        {"verifier": verifier} if verifier else None,
    )


def _grant(connection: Connection, role: str) -> None:
    database = connection.dialect.identifier_preparer.quote(connection.engine.url.database or "")
    statements = [
        f"GRANT CONNECT, TEMPORARY ON DATABASE {database} TO {role}",
        # Databases that began before Postgres 15 let every role make tables.
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        f"GRANT USAGE ON SCHEMA public TO {role}",
        # For those of the next release, from when they are made.
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT {_ROWS} ON TABLES TO {role}",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT {_NUMBERS} ON SEQUENCES TO {role}",
    ]
    for name, quoted, is_sequence in connection.execute(_TABLES_AND_SEQUENCES):
        thing = f"SEQUENCE {quoted}" if is_sequence else f"TABLE {quoted}"
        rights = _NUMBERS if is_sequence else _LESS.get(name, _ROWS)
        statements += [
            f"REVOKE ALL ON {thing} FROM {role}",
            f"GRANT {rights} ON {thing} TO {role}",
        ]
    for (function,) in connection.execute(_OWNERS_FUNCTIONS):
        statements += [
            f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC",
            f"GRANT EXECUTE ON FUNCTION {function} TO {role}",
        ]
    connection.exec_driver_sql(";".join(statements))


def _limit(connection: Connection, login: URL) -> None:
    """Let each session of the role in this database begin with our time limits."""
    quote = connection.dialect.identifier_preparer.quote
    role, database = quote(login.username or ""), quote(connection.engine.url.database or "")
    limits = ";".join(
        f"ALTER ROLE {role} IN DATABASE {database} SET {name} = '{value}'"
        for name, value in SESSION_DEFAULTS.items()
    )
    try:
        with connection.begin():
            connection.exec_driver_sql(limits)
    except ProgrammingError as error:
        if not isinstance(error.orig, psycopg2.errors.InsufficientPrivilege):
            raise
        # An owner who may make no roles may not set this for another one; each may for itself.
        url = login.set(drivername="postgresql").render_as_string(hide_password=False)
        with closing(psycopg2.connect(url)) as itself, itself, itself.cursor() as cursor:
            cursor.execute(limits)
