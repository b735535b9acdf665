import select
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import psycopg2
import psycopg2.extensions
from sqlalchemy import ClauseElement, Engine, create_engine, event, make_url, text
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection, PoolResetState

from core.settings import Settings

# Bounds for the statements of a request or task step: a stuck one must fail, not pile up.
STATEMENT_TIMEOUT_MS = 10_000
LOCK_TIMEOUT_MS = 3_000
IDLE_IN_TRANSACTION_TIMEOUT_MS = 15_000

# For so long after its last use, a connection counts as being in use still.
IN_USE_SECONDS = 0.1
TRUSTED_IDLE_SECONDS = 1.0


class _Wanted(threading.local):
    """How this thread wants the connection that it is about to take from the pool."""

    autocommit = False


_wanted = _Wanted()


class Statement:
    """SQL whose text is made once, where it is defined, for ``Database.rows``.

    Its values go to the driver as they are; a type of SQLAlchemy's that would convert them doesn't.
    """

    def __init__(self, sql: str | ClauseElement) -> None:
        clause = text(sql) if isinstance(sql, str) else sql
        compiled = clause.compile(dialect=PGDialect_psycopg2())  # type: ignore[no-untyped-call]
        self.text = str(compiled)
        # Those that the clause itself brings; None for what a call must give.
        self.values: Mapping[str, object] = compiled.params


@dataclass(frozen=True)
class Database:
    engine: Engine
    sessions: sessionmaker[Session]

    def rows(self, statement: Statement, **values: object) -> list[tuple[Any, ...]]:
        """What a statement returns that is a transaction of its own: it has been committed.

        For what many requests do, authentication above all: one round trip instead of three, and
        nothing around it but the pool. SQLAlchemy's connections cost several times as much as a
        small statement itself. Raises the driver's errors, and the pool's.
        """
        _wanted.autocommit = True
        try:
            pooled = self.engine.raw_connection()
        finally:
            _wanted.autocommit = False
        link = _driver_connection(pooled)
        try:
            with link.cursor() as cursor:
                cursor.execute(statement.text, {**statement.values, **values})
                return cursor.fetchall() if cursor.description else []
        finally:
            if link.closed:
                pooled.invalidate()
            pooled.close()

    def close(self) -> None:
        self.engine.dispose()


def open_database(settings: Settings, *, pool_size: int, application_name: str) -> Database:
    """A pool of at most ``pool_size`` connections; connects on first use."""
    options = (
        f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={LOCK_TIMEOUT_MS} "
        f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_TIMEOUT_MS} -c timezone=UTC"
    )
    url = make_url(settings.database_url.get_secret_value())
    engine = create_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=5,
        pool_recycle=1800,
        pool_reset_on_return=None,
        connect_args={
            "options": options,
            "application_name": application_name,
            "connect_timeout": 5,
            # A peer that vanished without a word is noticed within half a minute.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 20_000,
        },
    )
    _check_before_use(engine)
    _keep_modes_apart(engine)
    return Database(engine, sessions=sessionmaker(engine, expire_on_commit=False))


def _check_before_use(engine: Engine) -> None:
    """What ``pool_pre_ping`` does, at a fraction of its cost.

    A ping is a round trip, and a busy process would make several a request. A server that went away
    closed its connections, which shows at the socket without asking anybody; only what idled for
    longer is pinged, since a network may lose a connection without a word.
    """

    @event.listens_for(engine, "checkin")
    def note_time(_: DBAPIConnection | None, record: ConnectionPoolEntry) -> None:
        record.info["idle_since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def check(
        connection: DBAPIConnection, record: ConnectionPoolEntry, _: PoolProxiedConnection
    ) -> None:
        idle_since = record.info.get("idle_since")
        if idle_since is None:
            return
        idled = time.monotonic() - idle_since
        if idled < IN_USE_SECONDS:
            return
        if _was_closed(connection) or (
            idled > TRUSTED_IDLE_SECONDS and not _answers(engine, connection)
        ):
            # Those that idle beside it are most likely as dead.
            raise InvalidatePoolError


def _keep_modes_apart(engine: Engine) -> None:
    """Whoever takes a connection has it with transactions, but ``Database.rows`` without.

    A connection changes only when it goes from one to the other: a word to the driver, none to the
    server, and yet each makes a busy process change threads. So does a rollback of nothing.
    """

    @event.listens_for(engine, "checkout")
    def take(
        connection: DBAPIConnection, _: ConnectionPoolEntry, __: PoolProxiedConnection
    ) -> None:
        link = _driver_connection(connection)
        if link.autocommit != _wanted.autocommit:
            link.autocommit = _wanted.autocommit

    @event.listens_for(engine, "reset")
    def reset(connection: DBAPIConnection, _: ConnectionPoolEntry, __: PoolResetState) -> None:
        link = _driver_connection(connection)
        if not link.autocommit:
            link.rollback()


def _driver_connection(
    connection: DBAPIConnection | PoolProxiedConnection,
) -> psycopg2.extensions.connection:
    found = getattr(connection, "driver_connection", connection)
    return cast("psycopg2.extensions.connection", found)


def _was_closed(connection: DBAPIConnection) -> bool:
    """Whether an idle connection's socket has something to read: its end, or a farewell."""
    poll = select.poll()
    poll.register(_driver_connection(connection).fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _answers(engine: Engine, connection: DBAPIConnection) -> bool:
    try:
        return engine.dialect.do_ping(connection)
    except psycopg2.Error:
        return False
