"""Connections to Postgres for SQLAlchemy sessions and for single SQL statements."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

import psycopg2
import psycopg2.extensions
from pydantic import SecretStr
from sqlalchemy import URL, ClauseElement, Engine, NullPool, create_engine, event, make_url, text
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.engine.interfaces import ExceptionContext
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from core.counters.store_metrics import CONNECTION_LIMIT, CONNECTIONS_IN_USE, count_slow_statement
from core.settings.store_settings import DatabaseSettings
from core.telemetry.statement_spans import statement_span
from storage.connection_pool import ConnectionPool
from storage.discreet_cursor import DiscreetCursor
from storage.full_disks import report_database_error
from storage.server_watch import ServerWatch

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, sessionmaker

# Time limits for every SQL statement, because stuck statements would pile up.
_TIME_LIMITS = {
    "statement_timeout": "10s",
    "lock_timeout": "3s",
    "idle_in_transaction_session_timeout": "15s",
}
# The settings of the application's database sessions. `pressroom migrate` stores the session
# settings in the application's role, because a connection pooler would ignore a client's settings.
SESSION_DEFAULTS: Mapping[str, str] = {
    **_TIME_LIMITS,
    "timezone": "UTC",
    # JIT compilation of the import statement would take longer than running it.
    "jit": "off",
}
# The key in `record_info` that marks a pooled connection as counted in the metric.
_COUNTED_KEY = "counted"
# Selects the names of required settings that the session lacks. The statement doesn't check the
# values of time limits, because another release may set different values.
_SELECT_MISSING_SETTINGS = (
    "SELECT name FROM unnest(%s) AS name WHERE current_setting(name) = '0'"
    " UNION ALL SELECT 'timezone' WHERE current_setting('timezone') <> %s"
)


class TimeLimitsMissing(psycopg2.OperationalError):
    """The sessions of the application's role lack required settings, such as time limits."""


class Statement:
    """A SQL statement for ``Database.rows``, which is compiled only once.

    The parameters and results of a ``Statement`` bypass SQLAlchemy's type conversions.
    """

    def __init__(self, sql: str | ClauseElement) -> None:
        clause = text(sql) if isinstance(sql, str) else sql
        compiled = clause.compile(dialect=PGDialect_psycopg2())  # type: ignore[no-untyped-call]
        self.text = str(compiled)
        # The parameter values that the SQLAlchemy clause contains. Parameters without a value are
        # omitted, so that the driver reports a forgotten value.
        bound_values = {name: value for name, value in compiled.params.items() if value is not None}
        self.values: Mapping[str, object] = bound_values


@dataclass(frozen=True)
class Database:
    engine: Engine
    connections: ConnectionPool

    @cached_property
    def sessions(self) -> "sessionmaker[Session]":
        """Import SQLAlchemy's ORM at the first use, because many commands run only single
        statements.
        """
        from sqlalchemy.orm import sessionmaker

        return sessionmaker(self.engine, expire_on_commit=False)

    def rows(self, statement: Statement, **values: object) -> list[tuple[Any, ...]]:
        """Run a SQL statement in a separate transaction, commit, and return the rows."""
        # Optimization: single SQL statements without SQLAlchemy (decision 17).
        connection = self.connections.take()
        if connection is None:
            return self._fetch_with_engine(statement, values)
        CONNECTIONS_IN_USE.inc()
        try:
            return _fetch(connection, statement, values)
        finally:
            CONNECTIONS_IN_USE.dec()
            self.connections.give_back(connection)

    def _fetch_with_engine(
        self, statement: Statement, values: Mapping[str, object]
    ) -> list[tuple[Any, ...]]:
        """Run a statement on a connection from the pool for transactions, not on a new one."""
        try:
            borrowed = self.engine.raw_connection()
        except SQLAlchemyError as error:
            driver_error = getattr(error, "orig", None)
            raise driver_error or psycopg2.OperationalError(str(error)) from None
        connection = cast("psycopg2.extensions.connection", borrowed.driver_connection)
        connection.autocommit = True
        try:
            return _fetch(connection, statement, values)
        finally:
            if connection.closed:
                borrowed.invalidate()
            else:
                connection.autocommit = False
                borrowed.close()

    def close(self) -> None:
        self.connections.close()
        self.engine.dispose()


def _fetch(
    connection: psycopg2.extensions.connection, statement: Statement, values: Mapping[str, object]
) -> list[tuple[Any, ...]]:
    with _StatementTimer(statement.text), connection.cursor() as cursor:
        cursor.execute(statement.text, {**statement.values, **values})
        return cursor.fetchall() if cursor.description else []


class _StatementTimer:
    def __init__(self, text: str) -> None:
        self._span = statement_span(text)

    def __enter__(self) -> None:
        self._span.__enter__()
        self._started_at = time.perf_counter()

    def __exit__(self, *failure: Any) -> None:
        count_slow_statement(time.perf_counter() - self._started_at)
        self._span.__exit__(*failure)


def open_database(
    settings: DatabaseSettings, *, pool_size: int, application_name: str, single_statements: int = 0
) -> Database:
    """Return a database whose connections open at first use.

    Args:
        pool_size: the maximum number of connections for transactions, which single statements
            borrow when their own connections are all in use.
        single_statements: the maximum number of connections for single statements.
    """
    url, open_connection = build_connector(settings.database_url, application_name)
    connect = partial(_connect_with_time_limits, open_connection)
    engine = create_engine(
        url,
        creator=connect,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=5,
        pool_recycle=1800,
        pool_pre_ping=True,
        # Omit parameters from error messages, because errors are logged and parameters contain
        # personal data.
        hide_parameters=True,
    )
    _instrument(engine)
    CONNECTION_LIMIT.inc(pool_size + single_statements)
    return Database(engine, ConnectionPool(connect, single_statements))


def open_replica(url: SecretStr, *, application_name: str) -> Engine:
    """Return an engine that opens a new connection for each read."""
    replica_url, connect = build_connector(url, application_name)
    return create_engine(replica_url, creator=connect, poolclass=NullPool, hide_parameters=True)


def require_time_limits(settings: DatabaseSettings) -> None:
    """Raise ``TimeLimitsMissing`` if the sessions of the database role have no time limits.

    Do nothing if the database is unreachable, because each new connection checks the time limits
    again.
    """
    _, connect = build_connector(settings.database_url, "pressroom-start")
    try:
        _connect_with_time_limits(connect).close()
    except TimeLimitsMissing:
        raise
    except psycopg2.Error:
        return


def build_connector(
    secret: SecretStr, application_name: str
) -> tuple[URL, Callable[..., psycopg2.extensions.connection]]:
    """Return the database URL for SQLAlchemy, and a function that opens a connection.

    All connections that the function opens share a ``ServerWatch``.
    """
    url = make_url(secret.get_secret_value())
    options = {
        "application_name": application_name,
        "connect_timeout": 5,
        # With these keepalive options, the kernel notices within half a minute that the database
        # server has vanished.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
    }
    dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
    watch = ServerWatch(dsn, options)

    def connect() -> psycopg2.extensions.connection:
        try:
            return watch.connect(cursor_factory=DiscreetCursor)
        except psycopg2.OperationalError as error:
            report_database_error(error)
            raise

    return url, connect


def _connect_with_time_limits(
    connect: Callable[..., psycopg2.extensions.connection],
) -> psycopg2.extensions.connection:
    connection = connect()
    values = (list(_TIME_LIMITS), SESSION_DEFAULTS["timezone"])
    rows = run_single_statement(connection, _SELECT_MISSING_SETTINGS, values)
    missing = ", ".join(name for (name,) in rows)
    if missing:
        role = connection.info.user
        connection.close()
        raise TimeLimitsMissing(
            f"sessions of the role {role} don't start with {missing}; run `pressroom migrate`, and "
            "reconnect any connection pool"
        )
    return connection


def is_pooled(connection: psycopg2.extensions.connection) -> bool:
    """Detect an external connection pooler, which reports a different process id than Postgres."""
    [(server_process_id,)] = run_single_statement(connection, "SELECT pg_backend_pid()")
    return bool(server_process_id != connection.info.backend_pid)


def run_single_statement(
    connection: psycopg2.extensions.connection, statement: str, values: tuple[object, ...] = ()
) -> list[tuple[Any, ...]]:
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        rows = cursor.fetchall() if cursor.description else []
    connection.autocommit = False
    return rows


def _instrument(engine: Engine) -> None:
    @event.listens_for(engine, "before_cursor_execute")
    def start_timer(
        _conn: Any, _cursor: Any, text: str, _values: Any, context: Any, _: Any
    ) -> None:
        context.statement_timer = _StatementTimer(text)
        context.statement_timer.__enter__()

    @event.listens_for(engine, "after_cursor_execute")
    def stop_timer(
        _conn: Any, _cursor: Any, _text: str, _values: Any, context: Any, _: Any
    ) -> None:
        context.statement_timer.__exit__(None, None, None)
        del context.statement_timer

    @event.listens_for(engine, "handle_error")
    def stop_timer_of_failed_statement(failure: ExceptionContext) -> None:
        timer: _StatementTimer | None = getattr(failure.execution_context, "statement_timer", None)
        if timer is not None:
            error = failure.original_exception
            timer.__exit__(type(error), error, None)

    def get_record_info(record: ConnectionPoolEntry) -> dict[Any, Any]:
        # Use `record_info`, because SQLAlchemy clears `info` when a connection breaks.
        assert record.record_info is not None
        return record.record_info

    @event.listens_for(engine, "checkout")
    def count_connection(_: object, record: ConnectionPoolEntry, __: object) -> None:
        get_record_info(record)[_COUNTED_KEY] = True
        CONNECTIONS_IN_USE.inc()

    @event.listens_for(engine, "checkin")
    def discount_connection(_: object, record: ConnectionPoolEntry) -> None:
        # SQLAlchemy may report the check-in of a dead connection without a preceding checkout.
        if get_record_info(record).pop(_COUNTED_KEY, False):
            CONNECTIONS_IN_USE.dec()
