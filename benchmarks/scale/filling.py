"""Fills a migrated, empty database to a volume.

Rows are inserted without triggers and foreign keys, and indexes are built afterwards, since that
takes a fraction of the time. The rows that triggers keep are filled too: counts, uses, histories.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from hashlib import sha256

import psycopg2
from psycopg2.extensions import connection, cursor

from benchmarks.measure import seconds_of
from benchmarks.scale import statements_of_lists, statements_of_money, statements_of_work
from benchmarks.scale.volume import Volume
from core.keyring import Keyring
from services.accounts import passwords

# All owners have this one.
PASSWORD = "correct horse battery staple"
STATEMENTS = {
    **statements_of_lists.STATEMENTS,
    **statements_of_work.STATEMENTS,
    **statements_of_money.STATEMENTS,
}
# Each stage has two hands, since the machines that this is made for have two cores. A statement
# finds what it reads in an earlier stage, or before it in its own hand.
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
        ("jobs", "attachments", "exports", "events", "payment_order_changes", "opt_outs"),
        ("subscription_events", "feed_events"),
    ),
)
_FILLED_BY_STAGES = {table for stage in _STAGES for hand in stage for table in hand}
_SESSION = """
SET session_replication_role = replica;
SET synchronous_commit = off;
SET maintenance_work_mem = '1GB';
SET work_mem = '512MB';
SET max_parallel_maintenance_workers = 1;
SET jit = off
"""


def fill(url: str, volume: Volume, keyring: Keyring) -> dict[str, tuple[int, float]]:
    """Fill all tables; returns for each the number of its rows, and the seconds that it took.

    Args:
        url: of the database, as an administrator of it.
    """
    with _session(url) as running:
        values = _values(running, volume, keyring)
    took: dict[str, tuple[int, float]] = {}
    last = [name for name in STATEMENTS if name not in _FILLED_BY_STAGES]
    for stage in (*_STAGES, (last,)):
        with ThreadPoolExecutor(2) as pool:
            done = [pool.submit(_fill_tables, url, hand, values, took) for hand in stage]
        for each in done:
            each.result()
    with _session(url) as running:
        # The first time, the statement of the other hand kept indexes from answering alone.
        running.execute("VACUUM (ANALYZE)")
    return took


def _values(running: cursor, volume: Volume, keyring: Keyring) -> dict[str, object]:
    running.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'credit_entries'::regclass"
        " AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    )
    columns = [name for (name,) in running.fetchall()]
    key = keyring.current.subkey("opt-out")
    key = (sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
    return {
        **volume.numbers(),
        # The same all day: a database of the day before is as good.
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
    took: dict[str, tuple[int, float]],
) -> None:
    with _session(url) as running:
        for functions in (statements_of_lists.FUNCTIONS, statements_of_money.FUNCTIONS):
            running.execute(functions.format(**values))
        for table in tables:
            seconds = seconds_of(lambda table=table: _fill_table(running, table, values))  # type: ignore[misc]
            running.execute(f"SELECT count(*) FROM {table}")
            [(rows,)] = running.fetchall()
            took[table] = (rows, seconds)
            print(f"  {table:<24} {rows:>12,} rows {seconds:8.1f} s", flush=True)


def _fill_table(running: cursor, table: str, values: dict[str, object]) -> None:
    with _without_indexes(running, table):
        running.execute(STATEMENTS[table].format(**values))
    running.execute(_IDENTITY, (table,))
    for (column,) in running.fetchall():
        running.execute(
            f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'),"
            f" (SELECT coalesce(max({column}), 0) + 1 FROM {table}), false)"
        )
    running.execute(f"VACUUM (FREEZE, ANALYZE) {table}")


_IDENTITY = (
    "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attidentity IN ('a', 'd')"
)
# Primary keys stay, since other tables refer to them.
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
def _without_indexes(running: cursor, table: str) -> Iterator[None]:
    running.execute(_INDEXES, (table,))
    found = running.fetchall()
    for index, _, constraint, _ in found:
        kind = f"ALTER TABLE {table} DROP CONSTRAINT {constraint}"
        running.execute(kind if constraint else f"DROP INDEX {index}")
    yield
    for _, definition, constraint, rule in found:
        kind = f"ALTER TABLE {table} ADD CONSTRAINT {constraint} {rule}"
        running.execute(kind if constraint else definition)


@contextmanager
def _session(url: str) -> Iterator[cursor]:
    link: connection = psycopg2.connect(url)
    with closing(link), link.cursor() as running:
        link.autocommit = True
        running.execute(_SESSION)
        yield running
