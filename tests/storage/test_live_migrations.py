import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from sqlalchemy.exc import IntegrityError

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from storage.migrations import online
from storage.migrations.revisions import newest_revision
from storage.migrations.run import ADVISORY_LOCK, migrate
from tests.support.stack.scratch_databases import ScratchDatabase, scratch_database

pytestmark = pytest.mark.tier("check")

# Longer than a migration waits for a lock.
LONGER_THAN_THE_LOCK_TIMEOUT = 1.5
VALID = (
    "SELECT bool_and(indisvalid) FROM pg_index WHERE indexrelid::regclass::text LIKE 'ix_things%'"
)


@pytest.fixture
def scratch(idle_stack: Stack) -> Iterator[ScratchDatabase]:
    with scratch_database(idle_stack) as opened:
        opened.execute("CREATE TABLE things (id bigint, twice bigint)")
        yield opened


def test_hosts_take_turns_and_try_again_for_a_lock(scratch: ScratchDatabase) -> None:
    build = partial(online.create_index, "ix_things", "things", "id")
    asks = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'pressroom-migrate'"
    with scratch.engine.connect() as other, ThreadPoolExecutor(1) as pool:
        other.exec_driver_sql(f"SELECT pg_advisory_lock({ADVISORY_LOCK})")
        other.commit()
        migrated = pool.submit(migrate, scratch.settings)
        eventually(lambda: scratch.scalar(asks))
        # The host that waits has no snapshot for whose end an index would wait.
        scratch.step(build)
        assert not migrated.done()
        other.exec_driver_sql(f"SELECT pg_advisory_unlock({ADVISORY_LOCK})")
        other.commit()
        assert migrated.result(60) == newest_revision()
        with scratch.held("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE"):
            migrated = pool.submit(migrate, scratch.settings)
            threading.Event().wait(LONGER_THAN_THE_LOCK_TIMEOUT)
            assert not migrated.done()
        assert migrated.result(60) == newest_revision()


def test_steps_run_beside_callers_and_go_on_where_they_were_stopped(
    scratch: ScratchDatabase,
) -> None:
    scratch.execute("INSERT INTO things SELECT n FROM generate_series(0, 99) AS n")
    scratch.execute("INSERT INTO things VALUES (1)")
    build = partial(online.create_index, "ix_things", "things", "id", unique=True)
    with pytest.raises(IntegrityError):
        scratch.step(build)
    assert scratch.scalar(VALID) is False
    with ThreadPoolExecutor(1) as pool:
        with scratch.held("DELETE FROM things WHERE id = 1"):
            built = pool.submit(scratch.step, build)
            threading.Event().wait(LONGER_THAN_THE_LOCK_TIMEOUT)
            assert not built.done()
            scratch.execute("SET LOCAL lock_timeout = '100ms'", "INSERT INTO things VALUES (-1)")
        built.result(30)
    scratch.step(build)  # is there already
    assert scratch.scalar(VALID)

    # A rule holds for new rows before the old ones are read.
    add = partial(online.add_constraint, "things", "ck_things_positive", "CHECK (id >= 0)")
    with pytest.raises(IntegrityError):
        scratch.step(add)
    with pytest.raises(IntegrityError):
        scratch.execute("INSERT INTO things VALUES (-2)")
    scratch.execute("DELETE FROM things WHERE id < 0")
    scratch.step(add)
    validated = (
        "SELECT bool_and(convalidated) FROM pg_constraint WHERE conname = 'ck_things_positive'"
    )
    assert scratch.scalar(validated)

    # The twentieth batch fails, as if it had been killed.
    scratch.execute("ALTER TABLE things ADD CONSTRAINT ck_stop CHECK (twice IS NULL OR id < 60)")
    fill = partial(
        online.in_batches,
        "UPDATE things SET twice = 2 * id WHERE id IN ("
        "SELECT id FROM things WHERE twice IS NULL ORDER BY id LIMIT 3)",
    )
    with pytest.raises(IntegrityError):
        scratch.step(fill)
    done = scratch.scalar("SELECT count(twice) FROM things")
    assert done == 57
    scratch.execute("ALTER TABLE things DROP CONSTRAINT ck_stop")
    scratch.step(fill)
    assert scratch.scalar("SELECT count(*) FROM things WHERE twice IS NULL") == 0

    scratch.step(partial(online.drop_index, "ix_things"))
    assert scratch.scalar(VALID) is None
