from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from core.settings.notations import Retained
from devstack.harness.stack import Stack
from services.privacy.expired_rows import purge_expired_rows
from services.privacy.purge_runs import PurgeRun, TablePurge, TablesNotPurged
from services.privacy.retention import RULES
from storage.unit_of_work import UnitOfWork
from tests.support.people.aged_rows import AgedRows
from tests.support.stack.held_rows import uncommitted

PURGED_RULES = [rule.name for rule in RULES if rule.is_purged]


def test_retention_purge_deletes_all_expired_rows_and_keeps_the_others(
    retention_stack: Stack, aged_rows: AgedRows
) -> None:
    old = {name: aged_rows.make_old(name) for name in PURGED_RULES}
    young = {name: aged_rows.make_young(name) for name in PURGED_RULES}
    assert purge_expired_rows(retention_stack.resources) >= len(PURGED_RULES)
    assert [name for name in PURGED_RULES if aged_rows.is_there(name, old[name])] == []
    assert [name for name in PURGED_RULES if not aged_rows.is_there(name, young[name])] == []
    assert purge_expired_rows(retention_stack.resources) == 0


def test_feed_events_are_kept_for_30_days_even_if_the_purge_gets_a_shorter_period(
    retention_stack: Stack, aged_rows: AgedRows
) -> None:
    young = aged_rows.make_young("feed_events")
    retention_stack.query("SELECT purge_feed_events(10000, 0)")
    assert aged_rows.is_there("feed_events", young)


def test_longer_retention_setting_keeps_rows_longer(
    retention_stack: Stack, aged_rows: AgedRows
) -> None:
    settings = retention_stack.settings()
    longer_periods = {kind: days + 30 for kind, days in settings.retention.items()}
    names = [rule.name for rule in RULES if rule.is_purged and isinstance(rule.period, Retained)]
    assert names
    keys = {name: aged_rows.make(name, past_by=timedelta(days=29)) for name in names}
    longer_settings = settings.model_copy(update={"retention": longer_periods})
    purge_expired_rows(replace(retention_stack.resources, settings=longer_settings))
    assert [name for name in names if not aged_rows.is_there(name, keys[name])] == []
    purge_expired_rows(retention_stack.resources)
    assert [name for name in names if aged_rows.is_there(name, keys[name])] == []


def test_retention_purge_keeps_imports_and_exports_that_are_still_needed(
    retention_stack: Stack, aged_rows: AgedRows
) -> None:
    for name, assignments in (
        ("imports", "added = 2, undone = 1"),
        ("imports", "files_removed_at = NULL"),
        ("imports", "finished_at = NULL, status = 'running'"),
        ("exports", "files_removed_at = NULL"),
    ):
        key = aged_rows.make_old(name)
        retention_stack.query(f"UPDATE {name} SET {assignments} WHERE ROW(id)::text = %s", key)
        purge_expired_rows(retention_stack.resources)
        assert aged_rows.is_there(name, key), assignments
        retention_stack.query(f"DELETE FROM {name} WHERE ROW(id)::text = %s", key)
    dry_run_key = aged_rows.make_old("imports")
    retention_stack.query(
        "UPDATE imports SET dry_run = true, added = 5 WHERE ROW(id)::text = %s", dry_run_key
    )
    purge_expired_rows(retention_stack.resources)
    assert not aged_rows.is_there("imports", dry_run_key)


@contextmanager
def failing_deletes(stack: Stack, table: str) -> Iterator[None]:
    """Make every deletion of a row from the table fail."""
    stack.query(
        "CREATE FUNCTION ck_broken() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN RAISE EXCEPTION ''a broken row''; END'"
    )
    try:
        stack.query(
            f"CREATE TRIGGER broken BEFORE DELETE ON {table}"
            " FOR EACH ROW EXECUTE FUNCTION ck_broken()"
        )
        yield
    finally:
        stack.query("DROP FUNCTION ck_broken() CASCADE")


@pytest.mark.parametrize("table", ["imports", "oauth_tokens", "mail_counts"])
def test_retention_purge_continues_with_other_tables_if_deletes_in_one_table_fail(
    retention_stack: Stack, aged_rows: AgedRows, table: str
) -> None:
    keys = {name: aged_rows.make_old(name) for name in PURGED_RULES}
    with (
        failing_deletes(retention_stack, table),
        pytest.raises(TablesNotPurged, match=rf"^{table}\b.* \(RaiseExcep"),
    ):
        purge_expired_rows(retention_stack.resources)
    remaining = {name for name in PURGED_RULES if aged_rows.is_there(name, keys[name])}
    assert remaining == {name for name in PURGED_RULES if name.split(".")[0] == table}
    purge_expired_rows(retention_stack.resources)


def test_retention_purge_continues_with_other_tables_if_one_table_is_locked(
    retention_stack: Stack, aged_rows: AgedRows
) -> None:
    keys = {name: aged_rows.make_old(name) for name in PURGED_RULES}
    lock = "LOCK TABLE spent_proofs IN ACCESS EXCLUSIVE MODE"
    with (
        uncommitted(retention_stack, lock),
        pytest.raises(TablesNotPurged, match=r"^spent_proofs \(LockNotAvailable\); \d+ rows"),
    ):
        purge_expired_rows(retention_stack.resources)
    assert [name for name in PURGED_RULES if aged_rows.is_there(name, keys[name])] == [
        "spent_proofs"
    ]
    purge_expired_rows(retention_stack.resources)


def test_retention_purge_skips_locked_row_until_its_lock_is_released(
    retention_stack: Stack, aged_rows: AgedRows
) -> None:
    locked_key, unlocked_key = (aged_rows.make_old("spent_proofs") for _ in range(2))
    lock = f"SELECT 1 FROM spent_proofs WHERE ROW(proof_hash)::text = '{locked_key}' FOR UPDATE"
    with uncommitted(retention_stack, lock):
        purge_expired_rows(retention_stack.resources)
        assert aged_rows.is_there("spent_proofs", locked_key)
        assert not aged_rows.is_there("spent_proofs", unlocked_key)
    purge_expired_rows(retention_stack.resources)
    assert not aged_rows.is_there("spent_proofs", locked_key)


def test_retention_purge_batches_shrink_after_statement_timeouts(retention_stack: Stack) -> None:
    sizes: list[int] = []
    remaining = 25

    def purge_batch(uow: UnitOfWork, max_rows: int) -> int:
        nonlocal remaining
        sizes.append(max_rows)
        uow.session.execute(text("SET LOCAL statement_timeout = 200"))
        uow.session.execute(text("SELECT pg_sleep(:seconds)"), {"seconds": max_rows / 200})
        purged = min(max_rows, remaining)
        remaining -= purged
        return purged

    purge = PurgeRun(retention_stack.resources)
    purge.purge_tables(TablePurge("slow", purge_batch, 1_000))
    assert sizes == [1_000, 100, 10, 10, 10]
    assert purge.end() == 25


def test_retention_purge_alternates_between_tables_after_each_batch(retention_stack: Stack) -> None:
    purged_tables: list[str] = []

    def make_table(name: str, row_count: int) -> TablePurge:
        remaining = [row_count]

        def purge_batch(_: UnitOfWork, limit: int) -> int:
            purged_tables.append(name)
            purged = min(limit, remaining[0])
            remaining[0] -= purged
            return purged

        return TablePurge(name, purge_batch, 10)

    purge = PurgeRun(retention_stack.resources)
    purge.purge_tables(make_table("large", 35), make_table("small", 5))
    assert purged_tables == ["large", "small", "large", "large", "large"]
    assert purge.end() == 40
