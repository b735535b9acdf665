"""Connections to Postgres: for SQLAlchemy sessions, and for single SQL statements."""

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

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, sessionmaker

# Bounds for each statement of a request or task step: a stuck statement fails instead of piling up.
_TIME_LIMITS = {
    "statement_timeout": "10s",
    "lock_timeout": "3s",
    "idle_in_transaction_session_timeout": "15s",
}
# Settings with which a session begins. The role has it (`pressroom migrate`): a pool of connections
# in front of the server takes no such wishes from a client.
SESSION_DEFAULTS: Mapping[str, str] = {
    **_TIME_LIMITS,
    "timezone": "UTC",
    # To compile a statement for each chunk of an import takes longer than to run it.
    "jit": "off",
}
_COUNTED = "counted"
# How long the limits are is not asked: another release may have others, and give them to the role.
_MISSING = (
    "SELECT name FROM unnest(%s) AS name WHERE current_setting(name) = '0'"
    " UNION ALL SELECT 'timezone' WHERE current_setting('timezone') <> %s"
)


class NoTimeLimits(psycopg2.OperationalError):
    """The sessions of the application's role don't begin as they should."""


class Statement:
    """SQL whose text is compiled once, for ``Database.rows``.

    Values go to the driver unchanged: SQLAlchemy's types convert neither parameters nor results.
    """

    def __init__(self, sql: str | ClauseElement) -> None:
        clause = text(sql) if isinstance(sql, str) else sql
        compiled = clause.compile(dialect=PGDialect_psycopg2())  # type: ignore[no-untyped-call]
        self.text = str(compiled)
        # Values that the clause itself binds. A value that a call forgets stays out, so that the
        # driver raises for it.
        bound = {name: value for name, value in compiled.params.items() if value is not None}
        self.values: Mapping[str, object] = bound


@dataclass(frozen=True)
class Database:
    engine: Engine
    connections: ConnectionPool

    @cached_property
    def sessions(self) -> "sessionmaker[Session]":
        """Imported at the first use: a command of single statements has none."""
        from sqlalchemy.orm import sessionmaker

        return sessionmaker(self.engine, expire_on_commit=False)

    def rows(self, statement: Statement, **values: object) -> list[tuple[Any, ...]]:
        """Run an SQL statement in a transaction of its own, commit, and return the rows.

        Raises ``psycopg2.Error``.
        """
        # Optimization: single SQL statements without SQLAlchemy (decision 17).
        connection = self.connections.take()
        if connection is None:
            return self._rows_beside_transactions(statement, values)
        CONNECTIONS_IN_USE.inc()
        try:
            return _fetch(connection, statement, values)
        finally:
            CONNECTIONS_IN_USE.dec()
            self.connections.give_back(connection)

    def _rows_beside_transactions(
        self, statement: Statement, values: Mapping[str, object]
    ) -> list[tuple[Any, ...]]:
        """The rows by a connection that transactions use too: so that there are no more of them."""
        try:
            borrowed = self.engine.raw_connection()
        except SQLAlchemyError as error:
            orig = getattr(error, "orig", None)
            raise orig or psycopg2.OperationalError(str(error)) from None
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
    with _Watched(statement.text), connection.cursor() as cursor:
        cursor.execute(statement.text, {**statement.values, **values})
        return cursor.fetchall() if cursor.description else []


class _Watched:
    """Times a statement, and makes a span of it where there is a collector."""

    def __init__(self, text: str) -> None:
        self._span = statement_span(text)

    def __enter__(self) -> None:
        self._span.__enter__()
        self._began = time.perf_counter()

    def __exit__(self, *failure: Any) -> None:
        count_slow_statement(time.perf_counter() - self._began)
        self._span.__exit__(*failure)


def open_database(
    settings: DatabaseSettings, *, pool_size: int, application_name: str, single_statements: int = 0
) -> Database:
    """A database with at most ``pool_size + single_statements`` connections.

    Transactions use the first. Statements by themselves use the others, and where all of these are
    in use, one of the first. Nothing connects before its first use, which raises ``NoTimeLimits``
    for a role without them.
    """
    url, open_ = connector(settings.database_url, application_name)
    connect = partial(_with_time_limits, open_)
    engine = create_engine(
        url,
        creator=connect,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=5,
        pool_recycle=1800,
        pool_pre_ping=True,
        # Errors are logged, and the values of their statements are people's.
        hide_parameters=True,
    )
    _watch(engine)
    CONNECTION_LIMIT.inc(pool_size + single_statements)
    alone = ConnectionPool(connect, single_statements)
    return Database(engine, alone)


def open_replica(url: SecretStr, *, application_name: str) -> Engine:
    """A replica for long reads, each of which has a connection of its own."""
    replica_url, connect = connector(url, application_name)
    return create_engine(replica_url, creator=connect, poolclass=NullPool, hide_parameters=True)


def require_time_limits(settings: DatabaseSettings) -> None:
    """Raises ``NoTimeLimits``; a database that is away is asked when it is back."""
    _, connect = connector(settings.database_url, "pressroom-start")
    try:
        _with_time_limits(connect).close()
    except NoTimeLimits:
        raise
    except psycopg2.Error:
        return


def connector(
    secret: SecretStr, application_name: str
) -> tuple[URL, Callable[..., psycopg2.extensions.connection]]:
    """The URL for SQLAlchemy, and what opens a connection."""
    url = make_url(secret.get_secret_value())
    connect = partial(
        psycopg2.connect,
        url.set(drivername="postgresql").render_as_string(hide_password=False),
        application_name=application_name,
        cursor_factory=DiscreetCursor,
        connect_timeout=5,
        # The kernel notices a server that vanished silently within half a minute.
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        tcp_user_timeout=20_000,
    )
    return url, connect


def _with_time_limits(
    connect: Callable[..., psycopg2.extensions.connection],
) -> psycopg2.extensions.connection:
    opened = connect()
    values = (list(_TIME_LIMITS), SESSION_DEFAULTS["timezone"])
    missing = ", ".join(name for (name,) in run_alone(opened, _MISSING, values))
    if missing:
        role = opened.info.user
        opened.close()
        raise NoTimeLimits(
            f"sessions of the role {role} don't begin with {missing}: run `pressroom migrate`, and "
            "let a pool open its connections to the server again"
        )
    return opened


def is_pooled(opened: psycopg2.extensions.connection) -> bool:
    """Return whether a pool is between us and the server: it tells its clients process ids of its
    own.
    """
    [(server_process,)] = run_alone(opened, "SELECT pg_backend_pid()")
    return bool(server_process != opened.info.backend_pid)


def run_alone(
    opened: psycopg2.extensions.connection, statement: str, values: tuple[object, ...] = ()
) -> list[tuple[Any, ...]]:
    """The rows of a statement that is a transaction of its own."""
    opened.autocommit = True
    with opened.cursor() as cursor:
        cursor.execute(statement, values)
        rows = cursor.fetchall() if cursor.description else []
    opened.autocommit = False
    return rows


def _watch(engine: Engine) -> None:
    """Watch each statement, and count the connections in use."""

    @event.listens_for(engine, "before_cursor_execute")
    def begin(_conn: Any, _cursor: Any, text: str, _values: Any, context: Any, _: Any) -> None:
        context.watched = _Watched(text)
        context.watched.__enter__()

    @event.listens_for(engine, "after_cursor_execute")
    def end(_conn: Any, _cursor: Any, _text: str, _values: Any, context: Any, _: Any) -> None:
        context.watched.__exit__(None, None, None)
        del context.watched

    @event.listens_for(engine, "handle_error")
    def fail(failed: ExceptionContext) -> None:
        watched: _Watched | None = getattr(failed.execution_context, "watched", None)
        if watched is not None:
            error = failed.original_exception
            watched.__exit__(type(error), error, None)

    def counted(record: ConnectionPoolEntry) -> dict[Any, Any]:
        # Unlike `info`, it outlives the connection that is given back because it broke.
        assert record.record_info is not None
        return record.record_info

    @event.listens_for(engine, "checkout")
    def take(_: object, record: ConnectionPoolEntry, __: object) -> None:
        counted(record)[_COUNTED] = True
        CONNECTIONS_IN_USE.inc()

    @event.listens_for(engine, "checkin")
    def give_back(_: object, record: ConnectionPoolEntry) -> None:
        # A connection that was found dead is given back too, and nobody had it.
        if counted(record).pop(_COUNTED, False):
            CONNECTIONS_IN_USE.dec()
