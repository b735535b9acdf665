"""The privileges of the application's database role, which may only read and write rows.

A separate owner role creates and changes tables (``pressroom migrate``). An attacker who can run
SQL as the application's role can't change the schema, truncate a table or disable a trigger. The
application's role may create temporary tables, in which imports stage their rows.

The time limits of sessions are stored in the application's role, so that they apply even if a
connection pooler opens the sessions.
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

_DEFAULT_PRIVILEGES = "SELECT, INSERT, UPDATE, DELETE"
# The application's role may take the next number of a sequence, but may not reset the sequence.
_SEQUENCE_PRIVILEGES = "USAGE, SELECT"
# The tables on which the application's role has fewer than the default privileges. The
# application's role can't update append-only tables, or delete rows that record money.
_RESTRICTED_PRIVILEGES = {
    "alembic_version": "SELECT",
    "payment_order_transitions": "SELECT",
    "credit_entries": "SELECT, INSERT",
    # Maintenance deletes orders that were never paid or claimed, together with their history.
    # Triggers prevent the deletion of the history of an order that was paid or claimed.
    "payment_events": "SELECT, INSERT, DELETE",
    "payment_order_changes": "SELECT, INSERT, DELETE",
    "credit_accounts": "SELECT, INSERT, UPDATE",
    # SECURITY DEFINER functions delete old feed events, and raise the feed offset after a restore.
    "feed_events": "SELECT, INSERT",
    "feed_offsets": "SELECT",
    # Only SECURITY DEFINER functions may change consent records, for example to erase a person.
    "consent_entries": "SELECT, INSERT",
    "consent_claims": "SELECT, INSERT",
    "consent_wordings": "SELECT, INSERT",
    # The erasure of a person clears the IP addresses and user agents in the person's events. A
    # SECURITY DEFINER function deletes old events.
    "events": "SELECT, INSERT, UPDATE (ip, user_agent)",
}

# Selects the product's tables and sequences. Tables of extensions or other roles are skipped.
_SELECT_TABLES_AND_SEQUENCES = text(
    "SELECT relname, oid::regclass::text, relkind = 'S' FROM pg_class"
    " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v', 'S')"
    " AND pg_has_role(relowner, 'USAGE')"
    " AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype = 'e')"
)
# Selects the SECURITY DEFINER functions, which make changes that the application's role may not
# make.
_SELECT_OWNER_FUNCTIONS = text(
    "SELECT oid::regprocedure::text FROM pg_proc"
    " WHERE pronamespace = 'public'::regnamespace AND prosecdef AND pg_has_role(proowner, 'USAGE')"
)
_SELECT_HAS_EXCESS_PRIVILEGES = text(
    "SELECT rolsuper OR rolcreaterole OR has_schema_privilege(oid, 'public', 'CREATE') OR EXISTS ("
    "   SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    "   AND relkind = 'r' AND pg_has_role(pg_roles.oid, relowner, 'MEMBER'))"
    " FROM pg_roles WHERE rolname = :role"
)


def grant_application_access(connection: Connection, login: URL) -> None:
    """Create the application's role if it is missing, and grant exactly the required privileges.

    If the owner and the application share a role, its privileges aren't changed and a warning is
    logged.

    Args:
        connection: a database connection that is logged in as the owner role.
        login: the database URL of the application, which contains the role and the password.
    """
    with connection.begin():
        owner = connection.scalar(text("SELECT current_user"))
        role = login.username or owner
        if role != owner:
            _create_role(connection, role, login.password)
            _grant_privileges(connection, connection.dialect.identifier_preparer.quote(role))
        if has_excess_privileges(connection, role):
            log.warning("database.role_may_change_tables", role=role)
    _set_session_defaults(connection, login.set(username=role))


def has_excess_privileges(connection: Connection, role: str) -> bool:
    """Return whether the role may do more than read and write rows."""
    return bool(connection.scalar(_SELECT_HAS_EXCESS_PRIVILEGES, {"role": role}))


def _create_role(connection: Connection, role: str, password: str | None) -> None:
    if connection.scalar(text("SELECT 1 FROM pg_roles WHERE rolname = :role"), {"role": role}):
        return
    select_can_create = text(
        "SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user"
    )
    if not connection.scalar(select_can_create):
        raise DATABASE_UNUSABLE(
            reason=f"the role {role} doesn't exist, and the migration's role can't create it"
        )
    driver_connection = cast(
        "psycopg2.extensions.connection", connection.connection.dbapi_connection
    )
    # The CREATE ROLE statement contains a hash instead of the password, because the server may log
    # statements.
    verifier = password and psycopg2.extensions.encrypt_password(
        password, role, scope=driver_connection, algorithm="scram-sha-256"
    )
    quoted = connection.dialect.identifier_preparer.quote(role)
    connection.exec_driver_sql(
        f"CREATE ROLE {quoted} LOGIN" + (" PASSWORD %(verifier)s" if verifier else ""),
        {"verifier": verifier} if verifier else None,
    )


def _grant_privileges(connection: Connection, role: str) -> None:
    database = connection.dialect.identifier_preparer.quote(connection.engine.url.database or "")
    alter_defaults = "ALTER DEFAULT PRIVILEGES IN SCHEMA public"
    statements = [
        f"GRANT CONNECT, TEMPORARY ON DATABASE {database} TO {role}",
        # Databases from before Postgres 15 allow every role to create tables.
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        f"GRANT USAGE ON SCHEMA public TO {role}",
        # Default privileges apply to tables and sequences that future releases create.
        f"{alter_defaults} GRANT {_DEFAULT_PRIVILEGES} ON TABLES TO {role}",
        f"{alter_defaults} GRANT {_SEQUENCE_PRIVILEGES} ON SEQUENCES TO {role}",
    ]
    for name, quoted_name, is_sequence in connection.execute(_SELECT_TABLES_AND_SEQUENCES):
        if is_sequence:
            target = f"SEQUENCE {quoted_name}"
            privileges = _SEQUENCE_PRIVILEGES
        else:
            target = f"TABLE {quoted_name}"
            privileges = _RESTRICTED_PRIVILEGES.get(name, _DEFAULT_PRIVILEGES)
        statements += [
            f"REVOKE ALL ON {target} FROM {role}",
            f"GRANT {privileges} ON {target} TO {role}",
        ]
    for (function,) in connection.execute(_SELECT_OWNER_FUNCTIONS):
        statements += [
            f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC",
            f"GRANT EXECUTE ON FUNCTION {function} TO {role}",
        ]
    connection.exec_driver_sql(";".join(statements))


def _set_session_defaults(connection: Connection, login: URL) -> None:
    """Store session settings, such as time limits, in the application's role."""
    quote = connection.dialect.identifier_preparer.quote
    role = quote(login.username or "")
    database = quote(connection.engine.url.database or "")
    statements = ";".join(
        f"ALTER ROLE {role} IN DATABASE {database} SET {name} = '{value}'"
        for name, value in SESSION_DEFAULTS.items()
    )
    try:
        with connection.begin():
            connection.exec_driver_sql(statements)
    except ProgrammingError as error:
        if not isinstance(error.orig, psycopg2.errors.InsufficientPrivilege):
            raise
        # Without CREATEROLE, the role that owns the tables can't change the settings of the
        # application's role. Log in as the application's role, which can change its own settings.
        url = login.set(drivername="postgresql").render_as_string(hide_password=False)
        with closing(psycopg2.connect(url)) as session, session, session.cursor() as cursor:
            cursor.execute(statements)
