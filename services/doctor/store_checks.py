"""Checks the database, Redis, the broker and the object storage."""

import secrets
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import psycopg2
import redis
from pydantic import SecretStr
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from core.settings import Settings
from integrations.http_client import HttpBounds, HttpClient, HttpFailure
from services.doctor import sender_checks, work_checks
from services.doctor.runner import FREE_SPACE, CheckState, Diagnosis, diagnose, fine, skipped, wrong
from storage.database import TimeLimitsMissing, build_connector, open_database
from storage.database_space import check_database_space
from storage.migrations import revisions
from storage.migrations.roles import has_excess_privileges
from storage.objects import NO_BUCKET, ObjectStore
from storage.redis.client import open_redis

# The major version of Postgres with which Pressroom is tested.
_TESTED_POSTGRES_VERSION = 18
_MAX_CLOCK_SECONDS = 5.0
_MAX_CONNECTIONS_SHARE = 0.9
_MAX_LAG_SECONDS = 60
_EXTENSIONS = ["btree_gin", "pg_trgm"]
# Postgres settings that keep SQL statements out of the server's log, because the statements contain
# e-mail addresses, names and password hashes.
QUIET_LOG = {
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_parameter_max_length_on_error": "0",
    "log_statement": "none",
    "log_min_duration_statement": "-1",
    "auto_explain.log_min_duration": "-1",
}
_SELECT_LOG_SETTINGS = text("SELECT name, current_setting(name, true) FROM unnest(:names) AS name")
_SELECT_CONNECTIONS = text(
    "SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),"
    " current_setting('max_connections')::int"
)

_MIN_REDIS_VERSION = (6, 2)
_MAX_MEMORY_SHARE = 0.9
# Eviction policies with which Redis never evicts queues. Eviction policies that aren't listed here
# may evict keys without an expiry, such as queues.
_SAFE_POLICIES = ("volatile-lru", "volatile-lfu", "volatile-ttl", "volatile-random", "noeviction")

_OBJECT_BYTES = 4096
_RANGE_START = 1000
_RANGE_BYTES = 100
_STORAGE_BOUNDS = HttpBounds(max_seconds=5.0, max_connect_seconds=2.0, max_reply_bytes=64 * 1024)


def check_database(settings: Settings) -> Iterator[Diagnosis]:
    # Connect like the application, which refuses a database role without time limits.
    database = open_database(
        settings, pool_size=1, application_name="pressroom-doctor", single_statements=1
    )
    try:
        with database.engine.connect() as connection:
            connection.execute(text("SELECT 1"))
            url = urlsplit(settings.database_url.get_secret_value())
            yield fine("connection", f"{url.hostname}:{url.port or 5432}{url.path}")
            yield from _check_server(connection)
            revision = _check_revision(connection)
            yield revision
            yield from _check_limits_and_log(connection)
            if revision.state is CheckState.FINE:
                for each in work_checks.check_maintenance(connection):
                    yield replace(each, part="maintenance")
                yield replace(work_checks.check_waiting_mails(connection), part="mail")
                for each in sender_checks.check_senders(connection, settings):
                    yield replace(each, part="senders")
                check_database_space(database)
                yield fine("write", "a row and a temporary file")
    except OperationalError as error:
        if not isinstance(error.orig, TimeLimitsMissing):
            raise
        yield wrong("role", str(error.orig), "Run `pressroom migrate`.")
    finally:
        database.close()
    yield _check_replica(settings.read_database_url)


def _check_server(connection: Connection) -> Iterator[Diagnosis]:
    version = int(connection.scalar(text("SHOW server_version_num")) or 0) // 10_000
    advice = f"Use Postgres {_TESTED_POSTGRES_VERSION}."
    is_old = version < _TESTED_POSTGRES_VERSION
    yield diagnose("version", f"Postgres {version}", is_old, advice)
    before = time.time()
    server_time = connection.scalar(text("SELECT clock_timestamp()"))
    assert isinstance(server_time, datetime)
    local_time = datetime.fromtimestamp((before + time.time()) / 2, UTC)
    difference = abs((server_time - local_time).total_seconds())
    is_wrong = difference > _MAX_CLOCK_SECONDS
    finding = f"differs by {difference:.{0 if is_wrong else 1}f} s from this machine's clock"
    advice = (
        "Synchronise both clocks with NTP, because login codes and signed URLs depend on the time."
    )
    yield diagnose("clock", finding, is_wrong, advice)
    role = str(connection.scalar(text("SELECT current_user")))
    if has_excess_privileges(connection, role):
        advice = (
            "Set PRESSROOM_MIGRATION_DATABASE_URL, so that the application gets a role without "
            "these rights."
        )
        yield fine("role", f"{role} can change tables", advice)
    else:
        yield fine("role", f"{role} can only read and write rows")


def _check_revision(connection: Connection) -> Diagnosis:
    needed = revisions.get_newest_revision()
    applied = "none"
    if connection.scalar(text("SELECT to_regclass('alembic_version')")) is not None:
        applied = str(connection.scalar(text("SELECT version_num FROM alembic_version")))
    if applied == "none" or applied < needed:
        can_migrate = applied == "none" or revisions.explain_unsupported(applied) is None
        advice = "Run `pressroom migrate`" + ("." if can_migrate else " in a new database.")
        return wrong("revision", f"{applied}, but {needed} is required", advice)
    later = " of a newer release" if applied > needed else ""
    return fine("revision", f"{applied}{later}")


def _check_limits_and_log(connection: Connection) -> Iterator[Diagnosis]:
    query = text("SELECT extname, extversion FROM pg_extension WHERE extname = ANY(:names)")
    installed: dict[str, str] = dict(connection.execute(query, {"names": _EXTENSIONS}).all())
    finding = ", ".join(f"{name} {installed.get(name, 'is missing')}" for name in _EXTENSIONS)
    advice = "Install the Postgres contrib package, and run `pressroom migrate`."
    yield diagnose("extensions", finding, len(installed) < len(_EXTENSIONS), advice)
    used, maximum = connection.execute(_SELECT_CONNECTIONS).one()
    finding = f"{used} of {maximum} connections are open"
    advice = "Increase max_connections, or add a connection pool."
    yield diagnose("connections", finding, used > maximum * _MAX_CONNECTIONS_SHARE, advice)
    rows = connection.execute(_SELECT_LOG_SETTINGS, {"names": list(QUIET_LOG)}).all()
    # The value is NULL if the Postgres module that defines the setting isn't loaded.
    verbose = {name: value for name, value in rows if value not in {None, "", QUIET_LOG[name]}}
    if verbose:
        advice = ", ".join(f"{name} = {QUIET_LOG[name]}" for name in verbose)
        settings_text = ", ".join(f"{name} = {value}" for name, value in verbose.items())
        yield fine(
            "log",
            f"the log may contain addresses and password hashes: {settings_text}",
            f"Set {advice}.",
        )
    else:
        yield fine("log", "the log contains no values from SQL statements")


def _check_replica(url: SecretStr | None) -> Diagnosis:
    if url is None:
        return skipped("replica", "PRESSROOM_READ_DATABASE_URL is not set")
    _, connect = build_connector(url, "pressroom-doctor")
    try:
        connection = connect()
    except psycopg2.OperationalError as error:
        advice = "Check PRESSROOM_READ_DATABASE_URL."
        return wrong("replica", " ".join(str(error).split()), advice)
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_is_in_recovery(), coalesce(extract(epoch FROM"
                " now() - pg_last_xact_replay_timestamp()), 0)"
                " * (pg_last_wal_receive_lsn() IS DISTINCT FROM pg_last_wal_replay_lsn())::int"
            )
            [(is_replica, lag)] = cursor.fetchall()
    finally:
        connection.close()
    if is_replica and lag > _MAX_LAG_SECONDS:
        return wrong("replica", f"{lag:.0f} s behind", "Find out why the replica's replay is slow.")
    if is_replica:
        return fine("replica", f"{lag:.0f} s behind")
    advice = "Set PRESSROOM_READ_DATABASE_URL to a replica, or leave it empty."
    return fine("replica", "not a replica", advice)


def _check_redis(settings: Settings) -> Iterator[Diagnosis]:
    with closing(open_redis(settings)) as client:
        key = f"doctor:{secrets.token_hex(8)}"
        value = secrets.token_hex(8)
        client.set(key, value, ex=60)
        stored_value: Any = client.getdel(key)
        if stored_value != value.encode():
            advice = "Check the server's memory and log."
            yield wrong("connection", "a stored key was lost", advice)
            return
        yield fine("connection", "a key was stored and read")
        try:
            info: dict[str, Any] = client.info()
        except redis.ResponseError:
            advice = "Allow the user to run INFO: ACL SETUSER … +info."
            yield skipped("version, policy, persistence", "the user can't run INFO", advice)
            return
    yield from _check_version_and_policy(info)
    yield _check_memory(info)
    yield _check_persistence(info)


def check_cache(settings: Settings) -> Iterator[Diagnosis]:
    yield from _check_redis(settings)
    with closing(open_redis(settings)) as client:
        for each in work_checks.check_workers(client):
            yield replace(each, part="workers")


def check_broker(settings: Settings) -> Iterator[Diagnosis]:
    if settings.broker == settings.cache:
        yield skipped("connection", "same server as redis")
    else:
        yield from _check_redis(settings.model_copy(update={"cache_url": settings.broker_url}))


def _check_version_and_policy(info: dict[str, Any]) -> Iterator[Diagnosis]:
    name = "Valkey" if "valkey_version" in info else "Redis"
    version_text = str(info.get("valkey_version") or info["redis_version"])
    protocol = tuple(int(each) for each in str(info["redis_version"]).split(".")[:2])
    advice = f"Use Redis {'.'.join(map(str, _MIN_REDIS_VERSION))} or later, or Valkey."
    yield diagnose("version", f"{name} {version_text}", protocol < _MIN_REDIS_VERSION, advice)
    policy = str(info.get("maxmemory_policy", "unknown"))
    advice = (
        "Set maxmemory-policy to volatile-lru. The current policy can evict queues when memory is "
        "low."
    )
    yield diagnose("policy", policy, policy not in _SAFE_POLICIES, advice)


def _check_memory(info: dict[str, Any]) -> Diagnosis:
    used = int(info.get("used_memory", 0))
    maximum = int(info.get("maxmemory", 0))
    megabytes = f"{used / 2**20:.0f} MB"
    if not maximum:
        return fine("memory", f"{megabytes} used, without a limit", "Set maxmemory.")
    finding = f"{megabytes} of {maximum / 2**20:.0f} MB"
    if used > maximum * _MAX_MEMORY_SHARE:
        return wrong(
            "memory", finding, "Increase maxmemory. Writes fail when the limit is reached."
        )
    return fine("memory", finding)


def _check_persistence(info: dict[str, Any]) -> Diagnosis:
    if info.get("loading"):
        return wrong("persistence", "the server is still loading its data", "Try again later.")
    if info.get("aof_last_write_status", "ok") != "ok":
        return wrong("persistence", "the server could not write its file", FREE_SPACE)
    if not info.get("aof_enabled"):
        advice = (
            "Set appendonly to yes. Otherwise a restart resets counters, and pending work is sent "
            "again."
        )
        return fine("persistence", "all data is lost at a restart", advice)
    return fine("persistence", "every write is saved to a file")


def check_storage(settings: Settings) -> Iterator[Diagnosis]:
    store = ObjectStore(settings, connections=1)
    if not store.has_bucket():
        yield wrong("bucket", NO_BUCKET, "Run `pressroom bucket`.")
        return
    region = settings.s3_region or "default"
    yield fine("bucket", f"{settings.s3_bucket}, region: {region}")
    store.check_space()
    key = f"doctor/{secrets.token_hex(16)}"
    data = secrets.token_bytes(_OBJECT_BYTES)
    store.put(key, data, "application/octet-stream")
    try:
        yield fine("write", f"{_OBJECT_BYTES} bytes")
        if store.get(key) == data:
            yield fine("read", "the bytes are identical")
        else:
            yield wrong(
                "read", "the bytes differ from the written bytes", "Use another object storage."
            )
        part = b"".join(store.stream(key, offset=_RANGE_START, length=_RANGE_BYTES))
        if part == data[_RANGE_START:][:_RANGE_BYTES]:
            yield fine("range", f"{_RANGE_BYTES} bytes, starting at byte {_RANGE_START}")
        else:
            advice = "Use an object storage that supports Range requests."
            yield wrong("range", "the bytes differ from the requested range", advice)
        yield _check_public_access(settings, key)
    finally:
        store.remove(key)
    if store.exists(key):
        yield wrong(
            "delete", "the object was not deleted", "Allow the access key to delete objects."
        )
    else:
        yield fine("delete", "the object was deleted")


def _check_public_access(settings: Settings, key: str) -> Diagnosis:
    """Check that nobody can read the bucket without credentials.

    The bucket contains imported files and images that owners have not published.
    """
    url = f"{str(settings.s3_endpoint).rstrip('/')}/{settings.s3_bucket}/{key}"
    advice = "Remove public read access from the bucket's policy. The API serves all files itself."
    with closing(HttpClient(_STORAGE_BOUNDS)) as http, suppress(HttpFailure):
        if http.send("GET", url).status in range(200, 300):
            return wrong("policy", "anyone can read the bucket", advice)
    return fine("policy", "public access is denied")
