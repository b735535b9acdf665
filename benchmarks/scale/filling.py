"""Fills an empty database with a large number of rows.

For speed, rows are inserted without triggers and foreign keys, and indexes are built afterwards.
Because triggers are disabled, the SQL statements also fill the tables that triggers maintain, such
as counts.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from hashlib import sha256

import psycopg2
from psycopg2.extensions import connection, cursor

from benchmarks.measure import measure_seconds
from benchmarks.scale import (
    statements_of_lists,
    statements_of_money,
    statements_of_reports,
    statements_of_work,
)
from benchmarks.scale.volume import Volume
from core.keyring import Keyring
from services.accounts import passwords

# The password of all list owners in the benchmark's database.
PASSWORD = "correct horse battery staple"
STATEMENTS = {
    **statements_of_lists.STATEMENTS,
    **statements_of_work.STATEMENTS,
    **statements_of_money.STATEMENTS,
    **statements_of_reports.STATEMENTS,
}
# The database tables in the order in which they are filled. The tables are filled in stages. In
# each stage, two groups of tables are filled in parallel. The statement that fills a table must not
# read from the tables that the same stage fills in parallel.
_STAGES: tuple[tuple[Sequence[str], ...], ...] = (
    (
        (
            "subscriptions",
            "lists",
            "subscriber_counts",
            "member_days",
            "imports",
            "import_changes",
        ),
        ("users", "payment_orders", "credit_entries", "credit_accounts"),
    ),
    (
        (
            "jobs",
            "attachments",
            "exports",
            "events",
            "payment_order_changes",
            "opt_outs",
            "bounces",
            "origin_days",
        ),
        ("subscription_events", "feed_events", "mailing_marks", "webhook_deliveries"),
    ),
)
_FILLED_BY_STAGES = {table for stage in _STAGES for group in stage for table in group}
_SESSION = """
SET session_replication_role = replica;
SET synchronous_commit = off;
SET maintenance_work_mem = '1GB';
SET work_mem = '512MB';
SET max_parallel_maintenance_workers = 1;
SET jit = off
"""


def fill(url: str, volume: Volume, keyring: Keyring) -> dict[str, tuple[int, float]]:
    """Fill all tables, and return the number of rows and the fill time in seconds for each table.

    Args:
        url: the database URL with the credentials of an administrator.
    """
    with _session(url) as sql:
        values = _values(sql, volume, keyring)
    results: dict[str, tuple[int, float]] = {}
    last = [name for name in STATEMENTS if name not in _FILLED_BY_STAGES]
    for stage in (*_STAGES, (last,)):
        with ThreadPoolExecutor(2) as pool:
            futures = [pool.submit(_fill_tables, url, group, values, results) for group in stage]
        for future in futures:
            future.result()
    with _session(url) as sql:
        # Repeat VACUUM, because open transactions prevented the first run from marking all pages
        # for index-only scans.
        sql.execute("VACUUM (ANALYZE)")
    return results


def _values(sql: cursor, volume: Volume, keyring: Keyring) -> dict[str, object]:
    sql.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'credit_entries'::regclass"
        " AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    )
    columns = [name for (name,) in sql.fetchall()]
    key = keyring.current.subkey("opt-out")
    key = (sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
    return {
        **volume.numbers(),
        # All times are relative to the start of the day, so that databases filled on the same day
        # contain the same rows.
        "anchor": datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0).isoformat(),
        "entry": ", ".join(statements_of_money.ENTRY.get(name, "NULL") for name in columns),
        "password_hash": passwords.hash_password(PASSWORD),
        "inner_pad": bytes(each ^ 0x36 for each in key).hex(),
        "outer_pad": bytes(each ^ 0x5C for each in key).hex(),
    }


def _fill_tables(
    url: str,
    tables: Sequence[str],
    values: dict[str, object],
    results: dict[str, tuple[int, float]],
) -> None:
    with _session(url) as sql:
        for functions in (statements_of_lists.FUNCTIONS, statements_of_money.FUNCTIONS):
            sql.execute(functions.format(**values))
        for table in tables:
            seconds = measure_seconds(lambda table=table: _fill_table(sql, table, values))  # type: ignore[misc]
            sql.execute(f"SELECT count(*) FROM {table}")
            [(rows,)] = sql.fetchall()
            results[table] = (rows, seconds)
            print(f"  {table:<24} {rows:>12,} rows {seconds:8.1f} s", flush=True)


def _fill_table(sql: cursor, table: str, values: dict[str, object]) -> None:
    with _without_indexes(sql, table):
        sql.execute(STATEMENTS[table].format(**values))
    sql.execute(_IDENTITY, (table,))
    for (column,) in sql.fetchall():
        sql.execute(
            f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'),"
            f" (SELECT coalesce(max({column}), 0) + 1 FROM {table}), false)"
        )
    sql.execute(f"VACUUM (FREEZE, ANALYZE) {table}")


_IDENTITY = (
    "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attidentity IN ('a', 'd')"
)
# Selects the indexes to drop before a table is filled. Primary keys and other indexes that foreign
# keys need are kept.
_INDEXES = """
SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid),
    n.conname, pg_get_constraintdef(n.oid)
FROM pg_index AS i
LEFT JOIN pg_constraint AS n ON n.conindid = i.indexrelid AND n.contype = 'u'
WHERE i.indrelid = %s::regclass AND NOT i.indisprimary
    AND NOT EXISTS (SELECT FROM pg_constraint AS f WHERE f.conindid = i.indexrelid
        AND f.contype = 'f')
"""


@contextmanager
def _without_indexes(sql: cursor, table: str) -> Iterator[None]:
    sql.execute(_INDEXES, (table,))
    indexes = sql.fetchall()
    for index, _, constraint, _ in indexes:
        kind = f"ALTER TABLE {table} DROP CONSTRAINT {constraint}"
        sql.execute(kind if constraint else f"DROP INDEX {index}")
    yield
    for _, definition, constraint, rule in indexes:
        kind = f"ALTER TABLE {table} ADD CONSTRAINT {constraint} {rule}"
        sql.execute(kind if constraint else definition)


@contextmanager
def _session(url: str) -> Iterator[cursor]:
    link: connection = psycopg2.connect(url)
    with closing(link), link.cursor() as sql:
        link.autocommit = True
        sql.execute(_SESSION)
        yield sql
