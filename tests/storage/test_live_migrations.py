"""Migrations beside running code: hosts take turns, and steps wait for nobody's convenience."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest
from sqlalchemy.exc import IntegrityError

from storage.migrations import online
from storage.migrations.run import ADVISORY_LOCK, head_revision, migrate
from tests.scratch import ScratchDatabase, scratch_database
from tests.stack import Stack, eventually

pytestmark = pytest.mark.check

HOLD_THE_TURN = f"SELECT pg_advisory_lock({ADVISORY_LOCK})"
# Longer than any timeout that a program's own statements have for a lock.
LONGER_THAN_A_LOCK_TIMEOUT = 4.0


@pytest.fixture
def scratch(stack: Stack) -> Iterator[ScratchDatabase]:
    with scratch_database(stack) as opened:
        yield opened


@contextmanager
def migrating(scratch: ScratchDatabase) -> Iterator[Future[str]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(migrate, scratch.settings)


def wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def test_a_host_waits_for_as_long_as_another_one_migrates(scratch: ScratchDatabase) -> None:
    with scratch.engine.connect() as other, ThreadPoolExecutor(1) as pool:
        other.exec_driver_sql(HOLD_THE_TURN)
        other.commit()
        migrated = pool.submit(migrate, scratch.settings)
        wait(LONGER_THAN_A_LOCK_TIMEOUT)
        assert not migrated.done()
        other.exec_driver_sql(f"SELECT pg_advisory_unlock({ADVISORY_LOCK})")
        other.commit()
        assert migrated.result(60) == head_revision()


def test_an_index_is_built_beside_a_host_that_waits_for_its_turn(
    scratch: ScratchDatabase,
) -> None:
    scratch.execute("CREATE TABLE things (id bigint)")
    with scratch.engine.connect() as other, ThreadPoolExecutor(2) as pool:
        other.exec_driver_sql(HOLD_THE_TURN)
        other.commit()
        waiting = pool.submit(migrate, scratch.settings)
        asks = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'pressroom-migrate'"
        eventually(lambda: scratch.scalar(asks))
        build = partial(online.create_index, "ix_things", "things", "id")
        pool.submit(scratch.step, build).result(30)
        other.exec_driver_sql(f"SELECT pg_advisory_unlock({ADVISORY_LOCK})")
        other.commit()
        assert waiting.result(60) == head_revision()


def test_a_step_that_gets_no_lock_is_tried_again(scratch: ScratchDatabase) -> None:
    scratch.upgrade("0013")
    # 0014 adds a column to this table.
    with migrating(scratch) as migrated:
        with scratch.held("SELECT 1 FROM lists"):
            wait(LONGER_THAN_A_LOCK_TIMEOUT)
            assert not migrated.done()
            # Callers don't wait behind the step for longer than a second at a time.
            scratch.execute("SET LOCAL lock_timeout = '2s'", "SELECT 1 FROM lists")
        assert migrated.result(60) == head_revision()


def test_an_index_is_built_while_a_report_reads_and_callers_write(
    scratch: ScratchDatabase,
) -> None:
    scratch.execute("CREATE TABLE things (id bigint)", "INSERT INTO things VALUES (1)")
    build = partial(online.create_index, "ix_things", "things", "id", where="id > 0")
    with ThreadPoolExecutor(1) as pool:
        with scratch.held("UPDATE things SET id = 2"):
            built = pool.submit(scratch.step, build)
            wait(LONGER_THAN_A_LOCK_TIMEOUT)
            assert not built.done()
            scratch.execute("SET LOCAL lock_timeout = '100ms'", "INSERT INTO things VALUES (3)")
        built.result(30)
    assert is_valid(scratch, "ix_things")


def test_an_index_that_was_left_half_built_is_built_again(scratch: ScratchDatabase) -> None:
    scratch.execute("CREATE TABLE things (id bigint)", "INSERT INTO things VALUES (1), (1)")
    build = partial(online.create_index, "ix_things", "things", "id", unique=True)
    with pytest.raises(IntegrityError):
        scratch.step(build)
    assert is_valid(scratch, "ix_things") is False
    scratch.execute("DELETE FROM things")
    scratch.step(build)
    assert is_valid(scratch, "ix_things")
    scratch.step(build)  # is there already


def test_a_rule_holds_for_new_rows_before_the_old_ones_are_read(scratch: ScratchDatabase) -> None:
    scratch.execute("CREATE TABLE things (id bigint)", "INSERT INTO things VALUES (-1)")
    add = partial(online.add_constraint, "things", "ck_things_positive", "CHECK (id > 0)")
    with pytest.raises(IntegrityError):
        scratch.step(add)
    with pytest.raises(IntegrityError):
        scratch.execute("INSERT INTO things VALUES (-2)")
    scratch.execute("DELETE FROM things")
    scratch.step(add)
    validated = "SELECT convalidated FROM pg_constraint WHERE conname = 'ck_things_positive'"
    assert scratch.scalar(validated)


def test_a_backfill_goes_on_where_it_was_stopped(scratch: ScratchDatabase) -> None:
    scratch.execute(
        "CREATE TABLE things (id bigint, twice bigint)",
        "INSERT INTO things SELECT n FROM generate_series(1, 100) AS n",
        # The twentieth batch fails, as if it had been killed.
        "ALTER TABLE things ADD CONSTRAINT ck_stop CHECK (twice IS NULL OR id < 60)",
    )
    fill = partial(
        online.in_batches,
        "UPDATE things SET twice = 2 * id WHERE id IN ("
        "SELECT id FROM things WHERE twice IS NULL ORDER BY id LIMIT 3)",
    )
    with pytest.raises(IntegrityError):
        scratch.step(fill)
    assert scratch.scalar("SELECT count(twice) FROM things") == 57
    scratch.execute("ALTER TABLE things DROP CONSTRAINT ck_stop")
    scratch.step(fill)
    assert scratch.scalar("SELECT sum(twice) FROM things") == 10_100


def is_valid(scratch: ScratchDatabase, index: str) -> object:
    return scratch.scalar(f"SELECT indisvalid FROM pg_index WHERE indexrelid = '{index}'::regclass")
