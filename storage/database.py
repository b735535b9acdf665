import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import psycopg2
import psycopg2.extensions
from sqlalchemy import ClauseElement, Engine, create_engine, event, make_url, text
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from core.settings import Settings
from storage.connections import TRUSTED_IDLE_SECONDS, ConnectionPool, peer_closed

# Bounds for the statements of a request or task step: a stuck one must fail, not pile up.
STATEMENT_TIMEOUT_MS = 10_000
LOCK_TIMEOUT_MS = 3_000
IDLE_IN_TRANSACTION_TIMEOUT_MS = 15_000


class Statement:
    """SQL whose text is made once, where it is defined, for ``Database.rows``.

    Its values go to the driver as they are; a type of SQLAlchemy's that would convert them doesn't.
    """

    def __init__(self, sql: str | ClauseElement) -> None:
        clause = text(sql) if isinstance(sql, str) else sql
        compiled = clause.compile(dialect=PGDialect_psycopg2())  # type: ignore[no-untyped-call]
        self.text = str(compiled)
        # Those that the clause itself brings: the driver misses what a call forgets to give.
        brought = {name: value for name, value in compiled.params.items() if value is not None}
        self.values: Mapping[str, object] = brought


@dataclass(frozen=True)
class Database:
    engine: Engine
    sessions: sessionmaker[Session]
    links: ConnectionPool

    def rows(self, statement: Statement, **values: object) -> list[tuple[Any, ...]]:
        """What a statement returns that is a transaction of its own: it has been committed.

        For what many requests do, authentication above all: one round trip instead of three, and
        nothing around it. What SQLAlchemy's connections and pool do costs several times as much as
        a small statement itself. Raises ``psycopg2.Error``.
        """
        link = self.links.take()
        try:
            with link.cursor() as cursor:
                cursor.execute(statement.text, {**statement.values, **values})
                return cursor.fetchall() if cursor.description else []
        finally:
            self.links.give_back(link)

    def close(self) -> None:
        self.links.close()
        self.engine.dispose()


def open_database(settings: Settings, *, pool_size: int, application_name: str) -> Database:
    """A pool of at most ``pool_size`` connections, and one more for each thread that needs one for
    single statements at the same time; connects on first use."""
    options = (
        f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={LOCK_TIMEOUT_MS} "
        f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_TIMEOUT_MS} -c timezone=UTC"
    )
    url = make_url(settings.database_url.get_secret_value())
    connect = partial(
        psycopg2.connect,
        url.set(drivername="postgresql").render_as_string(hide_password=False),
        options=options,
        application_name=application_name,
        connect_timeout=5,
        # A peer that vanished without a word is noticed within half a minute.
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        tcp_user_timeout=20_000,
    )
    engine = create_engine(
        url,
        creator=connect,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=5,
        pool_recycle=1800,
    )
    _check_before_use(engine)
    return Database(engine, sessionmaker(engine, expire_on_commit=False), ConnectionPool(connect))


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
        if peer_closed(cast("psycopg2.extensions.connection", connection)) or (
            idled > TRUSTED_IDLE_SECONDS and not _answers(engine, connection)
        ):
            # Those that idle beside it are most likely as dead.
            raise InvalidatePoolError


def _answers(engine: Engine, connection: DBAPIConnection) -> bool:
    try:
        return engine.dialect.do_ping(connection)
    except psycopg2.Error:
        return False
