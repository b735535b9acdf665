import select
import time
from dataclasses import dataclass
from typing import cast

import psycopg2
import psycopg2.extensions
from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.dialects import registry
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from core.settings import Settings
from storage.dialect import Dialect

# Bounds for the statements of a request or task step: a stuck one must fail, not pile up.
STATEMENT_TIMEOUT_MS = 10_000
LOCK_TIMEOUT_MS = 3_000
IDLE_IN_TRANSACTION_TIMEOUT_MS = 15_000

TRUSTED_IDLE_SECONDS = 1.0

_DRIVER = "postgresql+pressroom"
registry.register(_DRIVER.replace("+", "."), Dialect.__module__, Dialect.__name__)


@dataclass(frozen=True)
class Database:
    engine: Engine
    sessions: sessionmaker[Session]
    # Each statement is a transaction of its own: a read costs one round trip instead of three.
    autocommitting: Engine

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
        url.set(drivername=_DRIVER),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=5,
        pool_recycle=1800,
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
    return Database(
        engine,
        sessions=sessionmaker(engine, expire_on_commit=False),
        autocommitting=engine.execution_options(isolation_level="AUTOCOMMIT"),
    )


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
        if _was_closed(connection) or (
            idled > TRUSTED_IDLE_SECONDS and not _answers(engine, connection)
        ):
            # Those that idle beside it are most likely as dead.
            raise InvalidatePoolError


def _was_closed(connection: DBAPIConnection) -> bool:
    """Whether an idle connection's socket has something to read: its end, or a farewell."""
    poll = select.poll()
    poll.register(cast("psycopg2.extensions.connection", connection).fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _answers(engine: Engine, connection: DBAPIConnection) -> bool:
    try:
        return engine.dialect.do_ping(connection)
    except psycopg2.Error:
        return False
