"""Tests that migrations run while other processes use the database."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from sqlalchemy.exc import IntegrityError

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from storage.migrations import online
from storage.migrations.revisions import get_newest_revision
from storage.migrations.run import ADVISORY_LOCK, migrate
from tests.support.stack.scratch_databases import ScratchDatabase, scratch_database

pytestmark = pytest.mark.tier("check")

# A number of seconds that is greater than the lock timeout of a migration.
LONGER_THAN_THE_LOCK_TIMEOUT = 1.5
IS_INDEX_VALID = (
    "SELECT bool_and(indisvalid) FROM pg_index WHERE indexrelid::regclass::text LIKE 'ix_things%'"
)


@pytest.fixture
def database_with_table(idle_stack: Stack) -> Iterator[ScratchDatabase]:
    """A database with a single table, which is named `things` and empty."""
    with scratch_database(idle_stack) as opened:
        opened.execute("CREATE TABLE things (id bigint, twice bigint)")
        yield opened


def test_concurrent_migrations_run_one_after_another_and_retry_for_a_table_lock(
    database_with_table: ScratchDatabase,
) -> None:
    build = partial(online.create_index, "ix_things", "things", "id")
    find_migration = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'pressroom-migrate'"
    with database_with_table.engine.connect() as other_host, ThreadPoolExecutor(1) as pool:
        other_host.exec_driver_sql(f"SELECT pg_advisory_lock({ADVISORY_LOCK})")
        other_host.commit()
        migrated = pool.submit(migrate, database_with_table.settings)
        eventually(lambda: database_with_table.scalar(find_migration))
        # A waiting migration holds no snapshot, so it doesn't block the creation of an index.
        database_with_table.step(build)
        assert not migrated.done()
        other_host.exec_driver_sql(f"SELECT pg_advisory_unlock({ADVISORY_LOCK})")
        other_host.commit()
        assert migrated.result(60) == get_newest_revision()
        with database_with_table.open_transaction(
            "LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE"
        ):
            migrated = pool.submit(migrate, database_with_table.settings)
            threading.Event().wait(LONGER_THAN_THE_LOCK_TIMEOUT)
            assert not migrated.done()
        assert migrated.result(60) == get_newest_revision()


def test_online_migration_steps_do_not_block_callers_and_resume_after_failures(
    database_with_table: ScratchDatabase,
) -> None:
    database_with_table.execute("INSERT INTO things SELECT n FROM generate_series(0, 99) AS n")
    database_with_table.execute("INSERT INTO things VALUES (1)")
    build = partial(online.create_index, "ix_things", "things", "id", unique=True)
    with pytest.raises(IntegrityError):
        database_with_table.step(build)
    assert database_with_table.scalar(IS_INDEX_VALID) is False
    with ThreadPoolExecutor(1) as pool:
        with database_with_table.open_transaction("DELETE FROM things WHERE id = 1"):
            index_build = pool.submit(database_with_table.step, build)
            threading.Event().wait(LONGER_THAN_THE_LOCK_TIMEOUT)
            assert not index_build.done()
            database_with_table.execute(
                "SET LOCAL lock_timeout = '100ms'", "INSERT INTO things VALUES (-1)"
            )
        index_build.result(30)
    database_with_table.step(build)  # The index exists already.
    assert database_with_table.scalar(IS_INDEX_VALID)

    # A new constraint applies to new rows before it is validated for the old rows.
    add = partial(online.add_constraint, "things", "ck_things_positive", "CHECK (id >= 0)")
    with pytest.raises(IntegrityError):
        database_with_table.step(add)
    with pytest.raises(IntegrityError):
        database_with_table.execute("INSERT INTO things VALUES (-2)")
    database_with_table.execute("DELETE FROM things WHERE id < 0")
    database_with_table.step(add)
    validated = (
        "SELECT bool_and(convalidated) FROM pg_constraint WHERE conname = 'ck_things_positive'"
    )
    assert database_with_table.scalar(validated)

    # The twentieth batch fails, as it would if the migration was killed.
    database_with_table.execute(
        "ALTER TABLE things ADD CONSTRAINT ck_stop CHECK (twice IS NULL OR id < 60)"
    )
    fill = partial(
        online.run_in_batches,
        "UPDATE things SET twice = 2 * id WHERE id IN ("
        "SELECT id FROM things WHERE twice IS NULL ORDER BY id LIMIT 3)",
    )
    with pytest.raises(IntegrityError):
        database_with_table.step(fill)
    filled_rows = database_with_table.scalar("SELECT count(twice) FROM things")
    assert filled_rows == 57
    database_with_table.execute("ALTER TABLE things DROP CONSTRAINT ck_stop")
    database_with_table.step(fill)
    assert database_with_table.scalar("SELECT count(*) FROM things WHERE twice IS NULL") == 0

    database_with_table.step(partial(online.drop_index, "ix_things"))
    assert database_with_table.scalar(IS_INDEX_VALID) is None
