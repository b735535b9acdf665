import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import psycopg2
import psycopg2.extensions
from pydantic import SecretStr
from sqlalchemy import URL, ClauseElement, Engine, NullPool, create_engine, event, make_url, text
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from core.settings.store_settings import DatabaseSettings
from storage.connections import TRUSTED_IDLE_SECONDS, ConnectionPool, answers, peer_closed
from storage.long_reads import Replica

# Bounds for each statement of a request or task step: a stuck statement fails instead of piling up.
STATEMENT_TIMEOUT_MS = 10_000
LOCK_TIMEOUT_MS = 3_000
IDLE_IN_TRANSACTION_TIMEOUT_MS = 15_000


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
    sessions: sessionmaker[Session]
    connections: ConnectionPool

    def rows(self, statement: Statement, **values: object) -> list[tuple[Any, ...]]:
        """The rows of a statement that is a transaction of its own: it is committed already.

        For the statements that most requests run, such as authentication: one round trip instead of
        three. SQLAlchemy's connections and pool cost several times as much as a small statement.
        Raises ``psycopg2.Error``.
        """
        connection = self.connections.take()
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement.text, {**statement.values, **values})
                return cursor.fetchall() if cursor.description else []
        finally:
            self.connections.give_back(connection)

    def close(self) -> None:
        self.connections.close()
        self.engine.dispose()


def open_database(settings: DatabaseSettings, *, pool_size: int, application_name: str) -> Database:
    """A database whose transactions share at most ``pool_size`` connections.

    Single statements have connections of their own, one for each thread that runs one at the same
    time. Nothing connects before its first use.
    """
    options = (
        f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={LOCK_TIMEOUT_MS} "
        f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_TIMEOUT_MS} -c timezone=UTC "
        # To compile a statement for each chunk of an import takes longer than to run it.
        "-c jit=off"
    )
    url, connect = _connector(settings.database_url, application_name, options=options)
    engine = create_engine(
        url, creator=connect, pool_size=pool_size, max_overflow=0, pool_timeout=5, pool_recycle=1800
    )
    _check_before_use(engine)
    return Database(engine, sessionmaker(engine, expire_on_commit=False), ConnectionPool(connect))


def open_replica(url: SecretStr, *, application_name: str) -> Replica:
    """A replica for long reads, each of which has a connection of its own."""
    replica_url, connect = _connector(url, application_name, options="-c timezone=UTC")
    engine = create_engine(replica_url, creator=connect, poolclass=NullPool)
    return Replica(engine, connect)


def _connector(
    secret: SecretStr, application_name: str, *, options: str
) -> tuple[URL, Callable[..., psycopg2.extensions.connection]]:
    url = make_url(secret.get_secret_value())
    connect = partial(
        psycopg2.connect,
        url.set(drivername="postgresql").render_as_string(hide_password=False),
        options=options,
        application_name=application_name,
        connect_timeout=5,
        # The kernel notices a server that vanished silently within half a minute.
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        tcp_user_timeout=20_000,
    )
    return url, connect


def _check_before_use(engine: Engine) -> None:
    """Replace ``pool_pre_ping`` by a check that is mostly free.

    A ping is a round trip, and a busy process would make several a request. A server that went away
    closed its connections, which the socket shows without a round trip. Only a connection that was
    idle for longer is pinged, since a network may lose a connection silently.
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
        idle = cast("psycopg2.extensions.connection", connection)
        if peer_closed(idle) or (idled > TRUSTED_IDLE_SECONDS and not answers(idle)):
            # The other idle connections are most likely dead too.
            raise InvalidatePoolError
