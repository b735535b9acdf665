import time
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import urlsplit

import psycopg2
from pydantic import SecretStr
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from cli.doctor.diagnoses import CheckAnswer, Part, fine, skipped, wrong
from core.settings import Settings
from storage.database import NoTimeLimits, connector, open_database
from storage.migrations import revisions
from storage.migrations.roles import may_do_more

# What the tests run on.
_TESTED_VERSION = 18
_MAX_CLOCK_SECONDS = 5.0
_MAX_CONNECTIONS_SHARE = 0.9
_MAX_LAG_SECONDS = 60
_EXTENSION = "pg_trgm"
_USED = text(
    "SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),"
    " current_setting('max_connections')::int"
)


def _ask(settings: Settings) -> Iterator[CheckAnswer]:
    # The application's own way in: it refuses sessions without time limits.
    database = open_database(settings, pool_size=1, application_name="pressroom-doctor")
    try:
        with database.engine.connect() as connection:
            yield _connected(connection, settings.database_url)
            yield _version(connection)
            yield _clock(connection)
            yield _role(connection)
            yield _revision(connection)
            yield _extension(connection)
            yield _room(connection)
    except OperationalError as error:
        if not isinstance(error.orig, NoTimeLimits):
            raise
        yield wrong("role", str(error.orig), "Run `pressroom migrate`.")
    finally:
        database.close()
    yield _replica(settings.read_database_url)


DATABASE = Part("database", _ask)


def _connected(connection: Connection, url: SecretStr) -> CheckAnswer:
    connection.execute(text("SELECT 1"))
    named = urlsplit(url.get_secret_value())
    return fine("connection", f"{named.hostname}:{named.port or 5432}{named.path}")


def _version(connection: Connection) -> CheckAnswer:
    version = int(connection.scalar(text("SHOW server_version_num")) or 0) // 10_000
    if version < _TESTED_VERSION:
        return wrong("version", f"Postgres {version}", f"Use Postgres {_TESTED_VERSION}.")
    return fine("version", f"Postgres {version}")


def _clock(connection: Connection) -> CheckAnswer:
    before = time.time()
    theirs = connection.scalar(text("SELECT clock_timestamp()"))
    assert isinstance(theirs, datetime)
    ours = datetime.fromtimestamp((before + time.time()) / 2, UTC)
    apart = abs((theirs - ours).total_seconds())
    if apart > _MAX_CLOCK_SECONDS:
        advice = "Set both machines' clocks by NTP: codes and signed URLs are judged by the time."
        return wrong("clock", f"{apart:.0f} s apart from this machine's", advice)
    return fine("clock", f"{apart:.1f} s apart from this machine's")


def _role(connection: Connection) -> CheckAnswer:
    role = str(connection.scalar(text("SELECT current_user")))
    if may_do_more(connection, role):
        advice = "Give the application a role of its own: PRESSROOM_MIGRATION_DATABASE_URL."
        return fine("role", f"{role} may change tables", advice)
    return fine("role", f"{role} reads and writes rows alone")


def _revision(connection: Connection) -> CheckAnswer:
    needed = revisions.newest_revision()
    found = text("SELECT version_num FROM alembic_version")
    applied = str(connection.scalar(found)) if _has_tables(connection) else "none"
    if applied == "none" or applied < needed:
        leads_on = applied == "none" or revisions.dead_end(applied) is None
        advice = "Run `pressroom migrate`" + ("." if leads_on else " in a new database.")
        return wrong("revision", f"{applied}, and needed is {needed}", advice)
    later = " of a later release" if applied > needed else ""
    return fine("revision", f"{applied}{later}")


def _has_tables(connection: Connection) -> bool:
    return connection.scalar(text("SELECT to_regclass('alembic_version')")) is not None


def _extension(connection: Connection) -> CheckAnswer:
    found = text("SELECT extversion FROM pg_extension WHERE extname = :name")
    version = connection.scalar(found, {"name": _EXTENSION})
    if version is None:
        advice = "Install the package of Postgres' contrib, and run `pressroom migrate`."
        return wrong("extension", f"{_EXTENSION} is missing", advice)
    return fine("extension", f"{_EXTENSION} {version}")


def _room(connection: Connection) -> CheckAnswer:
    used, most = connection.execute(_USED).one()
    found = f"{used} of {most} connections are open"
    if used > most * _MAX_CONNECTIONS_SHARE:
        return wrong("connections", found, "Raise max_connections, or put a pool in front.")
    return fine("connections", found)


def _replica(url: SecretStr | None) -> CheckAnswer:
    if url is None:
        return skipped("replica", "PRESSROOM_READ_DATABASE_URL is not set")
    _, connect = connector(url, "pressroom-doctor")
    try:
        opened = connect()
    except psycopg2.OperationalError as error:
        advice = "Check PRESSROOM_READ_DATABASE_URL."
        return wrong("replica", " ".join(str(error).split()), advice)
    try:
        with opened.cursor() as cursor:
            cursor.execute(
                "SELECT pg_is_in_recovery(), coalesce(extract(epoch FROM"
                " now() - pg_last_xact_replay_timestamp()), 0)"
                " * (pg_last_wal_receive_lsn() IS DISTINCT FROM pg_last_wal_replay_lsn())::int"
            )
            [(is_replica, lag)] = cursor.fetchall()
    finally:
        opened.close()
    if is_replica and lag > _MAX_LAG_SECONDS:
        return wrong("replica", f"{lag:.0f} s behind", "Look for what holds up its replay.")
    what = f"{lag:.0f} s behind" if is_replica else "it is no replica"
    advice = "" if is_replica else "Name a replica, or leave PRESSROOM_READ_DATABASE_URL empty."
    return fine("replica", what, advice)
