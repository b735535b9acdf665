"""Migrates the database to the newest revision, or waits until another process has migrated it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg2
import psycopg2.errors
import psycopg2.extensions
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from pydantic import SecretStr
from sqlalchemy import Connection, Engine, NullPool, create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from core.logging import get_logger
from core.settings.store_settings import DatabaseSettings, MigrationSettings
from storage.database import (
    SESSION_DEFAULTS,
    Database,
    build_connector,
    is_pooled,
    open_database,
    run_single_statement,
)
from storage.migrations import revisions, roles

log = get_logger(__name__)

ADVISORY_LOCK = 0x50726573  # "Pres" in ASCII
# How long a migration step is retried if it can't get a lock within a second. The retries must take
# longer than the slowest report query or a period of high load, which can delay the lock.
MAX_RETRY_SECONDS = 1800.0
_PAUSE_SECONDS = 0.5
_TEMPORARY_ERRORS = (psycopg2.errors.LockNotAvailable, psycopg2.errors.DeadlockDetected)


class SessionIsPooled(psycopg2.OperationalError):
    """The table owner's connection goes through a connection pooler, not directly to Postgres."""


def build_alembic_config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    config.attributes["connection"] = connection
    return config


def migrate(settings: MigrationSettings) -> str:
    """Migrate the database to the newest revision, and grant access to the application's role.

    Return the revision of the database after the migration. Only one process migrates at a time. If
    a process is killed during a migration, the next process resumes at the unfinished step. If a
    newer release has migrated the database, nothing changes, because this release can use the
    newer tables. Raises ``service.unavailable`` if this release can't migrate the database.
    """
    owner_url = settings.migration_database_url or settings.database_url
    engine = open_owner_engine(owner_url, application_name="pressroom-migrate")
    with engine.connect() as connection:
        with _exclusive_migration(connection):
            with connection.begin():
                revision = read_current_revision(connection) or ""
            if revision > revisions.get_newest_revision():
                log.info("migrate.database_is_newer")
            else:
                _upgrade(connection)
                login = make_url(settings.database_url.get_secret_value())
                roles.grant_application_access(connection, login)
        return read_current_revision(connection) or ""


def wait_until_migrated(settings: DatabaseSettings) -> str:
    """Wait until another process has migrated the database to this release's revision or later.

    Return the newest schema revision in this release. The wait for a migration has no time limit,
    and continues while the database is unreachable. The reason for waiting is logged whenever it
    changes.
    """
    needed = revisions.get_newest_revision()
    database = open_database(settings, pool_size=1, application_name="pressroom-migrate-wait")
    logged_reason = ""
    try:
        while (reason := _explain_unusable(database, needed)) is not None:
            if reason != logged_reason:
                log.info("migrate.waits_for_the_database", revision=needed, reason=reason)
            logged_reason = reason
            time.sleep(_PAUSE_SECONDS)
    finally:
        database.close()
    return needed


def _explain_unusable(database: Database, needed: str) -> str | None:
    """Return why this release can't use the database, or ``None`` if the database is usable."""
    try:
        if revisions.is_compatible(database, needed):
            return None
        [applied] = revisions.read_revisions(database) or [""]
        return revisions.explain_unsupported(applied) or "its tables come from an earlier release"
    except psycopg2.Error as error:
        return str(error).strip()


@contextmanager
def _exclusive_migration(connection: Connection) -> Iterator[None]:
    """Keep other processes from migrating the database during the ``with`` block.

    The advisory lock is polled, because a waiting statement would hold a snapshot. CREATE INDEX
    CONCURRENTLY waits until all older snapshots have ended, so the migrating process and the
    waiting process would block each other.
    """
    try_lock = text("SELECT pg_try_advisory_lock(:key)").bindparams(key=ADVISORY_LOCK)
    is_waiting = False
    while True:
        with connection.begin():
            if connection.scalar(try_lock):
                break
        if not is_waiting:
            log.info("migrate.waits_for_its_turn")
        is_waiting = True
        time.sleep(_PAUSE_SECONDS)
    try:
        yield
    finally:
        connection.rollback()
        with connection.begin():
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": ADVISORY_LOCK})


def _upgrade(connection: Connection) -> None:
    """Run the missing migrations, and retry while other transactions hold the locks."""
    deadline = time.monotonic() + MAX_RETRY_SECONDS
    while True:
        try:
            command.upgrade(build_alembic_config(connection), "head")
        except OperationalError as error:
            if not isinstance(error.orig, _TEMPORARY_ERRORS) or time.monotonic() > deadline:
                raise
            log.info("migrate.tries_again", reason=str(error.orig).strip())
            time.sleep(_PAUSE_SECONDS)
        else:
            return
        finally:
            # After its last commit, Alembic begins another transaction. End this transaction.
            connection.rollback()


def read_current_revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def open_owner_engine(url: SecretStr, *, application_name: str) -> Engine:
    """Return a SQLAlchemy engine for the owner role, which connects directly to Postgres.

    Connecting raises ``SessionIsPooled`` for a connection pooler, because migrations change session
    settings.
    """
    owner_url, connect = build_connector(url, application_name)

    def connect_directly() -> psycopg2.extensions.connection:
        connection = connect()
        if is_pooled(connection):
            connection.close()
            raise SessionIsPooled(
                "migrations can't run through a connection pool; set "
                "PRESSROOM_MIGRATION_DATABASE_URL to the database server"
            )
        for name, value in SESSION_DEFAULTS.items():
            run_single_statement(connection, f"SET {name} = '{value}'")
        return connection

    return create_engine(owner_url, creator=connect_directly, poolclass=NullPool)
