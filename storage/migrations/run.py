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
    connector,
    is_pooled,
    open_database,
    run_alone,
)
from storage.migrations import revisions, roles

log = get_logger(__name__)

ADVISORY_LOCK = 0x50726573  # "Pres" in ASCII
# A step that changes a table gives up after a second, so that callers don't wait behind it, and is
# tried again for as long as a long report or a busy hour may last.
TRY_FOR_SECONDS = 1800.0
_PAUSE_SECONDS = 0.5
_NOT_NOW = (psycopg2.errors.LockNotAvailable, psycopg2.errors.DeadlockDetected)


def configuration(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    config.attributes["connection"] = connection
    return config


def migrate(settings: MigrationSettings) -> str:
    """Bring the database to the newest revision as the owner of its tables; return its name.

    Then let the application's role in. Processes that migrate at the same time take turns, for as
    long as it takes. A process that is killed half way leaves whole steps, and the next one goes
    on. Raises ``service.unavailable`` for a database from whose revision no migration leads here.
    """
    owner = settings.migration_database_url or settings.database_url
    engine = open_for_owner(owner, application_name="pressroom-migrate")
    with engine.connect() as connection:
        with _turn(connection):
            _upgrade(connection)
            roles.let_in(connection, make_url(settings.database_url.get_secret_value()))
        return current_revision(connection) or ""


def wait_until_migrated(settings: DatabaseSettings) -> str:
    """Wait until another process has brought the database to this release's revision, or further.

    Returns this release's revision. The database may be away meanwhile: this waits for as long as
    it takes, as the application's role and until that role is let in, and logs what it waits for.
    """
    needed = revisions.newest_revision()
    database = open_database(settings, pool_size=1, application_name="pressroom-migrate-wait")
    told = ""
    try:
        while (missing := _missing(database, needed)) is not None:
            if missing != told:
                log.info("migrate.waits_for_the_database", revision=needed, reason=missing)
            told = missing
            time.sleep(_PAUSE_SECONDS)
    finally:
        database.close()
    return needed


def _missing(database: Database, needed: str) -> str | None:
    """Why the database can't be used by this release, or ``None``."""
    try:
        if revisions.fits(database, needed):
            return None
        [applied] = revisions.applied(database) or [""]
        return revisions.dead_end(applied) or "its tables are an earlier release's"
    except psycopg2.Error as error:
        return str(error).strip()


@contextmanager
def _turn(connection: Connection) -> Iterator[None]:
    """Keep other migrating processes out.

    This process asks again and again, instead of waiting inside a statement: that has a snapshot,
    for whose end an index waits that the other process builds beside running code.
    """
    asks = text("SELECT pg_try_advisory_lock(:key)").bindparams(key=ADVISORY_LOCK)
    waits = False
    while True:
        with connection.begin():
            if connection.scalar(asks):
                break
        if not waits:
            log.info("migrate.waits_for_its_turn")
        waits = True
        time.sleep(_PAUSE_SECONDS)
    try:
        yield
    finally:
        connection.rollback()
        with connection.begin():
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": ADVISORY_LOCK})


def _upgrade(connection: Connection) -> None:
    """Run what is missing, again and again while callers hold what a step needs."""
    ends = time.monotonic() + TRY_FOR_SECONDS
    while True:
        try:
            command.upgrade(configuration(connection), "head")
        except OperationalError as error:
            if not isinstance(error.orig, _NOT_NOW) or time.monotonic() > ends:
                raise
            log.info("migrate.tries_again", reason=str(error.orig).strip())
            time.sleep(_PAUSE_SECONDS)
        else:
            return
        finally:
            # Alembic has committed what it did, and begun to read again.
            connection.rollback()


def current_revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


class PooledSession(psycopg2.OperationalError):
    """A pool is between us and the server, where the session must be ours alone."""


def open_for_owner(url: SecretStr, *, application_name: str) -> Engine:
    """Return an engine for the owner of the tables, who may set what holds for a session.

    Its first use raises ``PooledSession`` if the sessions are not with the server itself.
    """
    owner_url, connect = connector(url, application_name)

    def directly() -> psycopg2.extensions.connection:
        opened = connect()
        if is_pooled(opened):
            opened.close()
            raise PooledSession(
                "a pool of connections is in front of the server: PRESSROOM_MIGRATION_DATABASE_URL "
                "names the server itself"
            )
        for name, value in SESSION_DEFAULTS.items():
            run_alone(opened, f"SET {name} = '{value}'")
        return opened

    return create_engine(owner_url, creator=directly, poolclass=NullPool)
