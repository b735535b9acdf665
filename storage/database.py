from dataclasses import dataclass

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session, sessionmaker

from core.settings import Settings

# Bounds for the statements of a request or task step: a stuck one must fail, not pile up.
STATEMENT_TIMEOUT_MS = 10_000
LOCK_TIMEOUT_MS = 3_000
IDLE_IN_TRANSACTION_TIMEOUT_MS = 15_000


@dataclass(frozen=True)
class Database:
    engine: Engine
    sessions: sessionmaker[Session]
    # Each statement is a transaction of its own: a read costs one round trip instead of three.
    autocommitting: sessionmaker[Session]

    def close(self) -> None:
        self.engine.dispose()


def open_database(settings: Settings, *, pool_size: int, application_name: str) -> Database:
    """A pool of at most ``pool_size`` connections; connects on first use."""
    options = (
        f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={LOCK_TIMEOUT_MS} "
        f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_TIMEOUT_MS} -c timezone=UTC"
    )
    engine = create_engine(
        settings.database_url.get_secret_value(),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=5,
        pool_pre_ping=True,
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
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    return Database(
        engine,
        sessions=sessionmaker(engine, expire_on_commit=False),
        autocommitting=sessionmaker(autocommit, expire_on_commit=False),
    )
