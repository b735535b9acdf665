"""Tests how many table rows Postgres reads to import one chunk of a file."""

from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import text

from core.ids import random_hash_id
from devstack.harness.stack import Owner
from services.subscriptions.imports.chunks import applying
from storage.unit_of_work import UnitOfWork
from tests.support.imports.importing import ImportRunner, csv_of

OTHER_MEMBER_COUNT = 20_000
GROUP_SIZE = 100
TABLES = ("opt_outs", "subscriptions", "users")

_INSERT_PEOPLE = """
    INSERT INTO users (id, email)
    SELECT 8000000000000000 + (random() * 900000000000000)::bigint, 'other.' || n || %s
    FROM generate_series(1, %s) AS n
"""
_INSERT_MEMBERS = """
    INSERT INTO subscriptions (list_id, user_id, status, email, source)
    SELECT %s, id, 'active', email, 'import' FROM users WHERE email LIKE %s
"""
_INSERT_OPT_OUTS = """
    INSERT INTO opt_outs (list_id, user_id, address_hmac, kind, source)
    SELECT %s, id, sha256(email::bytea), 'email', 'page' FROM users WHERE email LIKE %s
"""
# Postgres counts the rows that each connection reads from a table, and resets these counters at
# most once per second. The counters can include rows that earlier transactions read, so subtract
# the counters before a measured action from the counters after the action.
_ROW_COUNTERS = text(
    "SELECT relname, coalesce(seq_tup_read, 0), coalesce(idx_tup_fetch, 0)"
    " FROM pg_stat_xact_user_tables WHERE relname IN ('opt_outs', 'subscriptions', 'users')"
)
# To import a chunk of a file, Postgres looks up and writes each row several times.
MAX_READS_PER_ROW = 20


@dataclass(frozen=True)
class ReadRows:
    """How many rows Postgres read from one table to import a chunk of a file.

    Attributes:
        scanned: the number of rows that sequential scans read.
        looked_up: the number of rows that index scans read.
    """

    scanned: int
    looked_up: int


def record_reads(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, ReadRows]]:
    """Return a list that gets an item for each chunk of a file that is imported.

    Each item maps the name of a table to the number of rows that Postgres read from the table to
    import the chunk.
    """
    reads: list[dict[str, ReadRows]] = []
    apply_chunk = applying.apply_chunk

    def read_counters(uow: UnitOfWork) -> dict[str, ReadRows]:
        rows = uow.session.execute(_ROW_COUNTERS).all()
        return {table: ReadRows(scanned, looked_up) for table, scanned, looked_up in rows}

    def apply_and_record(uow: UnitOfWork, *arguments: Any) -> Any:
        before = read_counters(uow)
        result = apply_chunk(uow, *arguments)
        after = read_counters(uow)
        unread = ReadRows(0, 0)
        reads.append(
            {
                table: ReadRows(
                    counters.scanned - before.get(table, unread).scanned,
                    counters.looked_up - before.get(table, unread).looked_up,
                )
                for table, counters in after.items()
            }
        )
        return result

    monkeypatch.setattr(applying, "apply_chunk", apply_and_record)
    return reads


def fill_other_list(importing: ImportRunner, owner: Owner, tag: str) -> int:
    """Create a list with many members, whose addresses contain ``tag``, and return its id."""
    list_id = importing.new_list(owner)
    importing.stack.query(_INSERT_PEOPLE, f".{tag}@example.com", OTHER_MEMBER_COUNT)
    importing.stack.query(_INSERT_MEMBERS, list_id, f"%.{tag}@example.com")
    return list_id


@pytest.mark.parametrize(
    "extra_columns", [{}, {"tags": "a,b", "created_at": "2020-01-01", "optin_time": "2020-01-02"}]
)
def test_import_chunk_scans_no_table_completely(
    importing: ImportRunner,
    importer: Owner,
    monkeypatch: pytest.MonkeyPatch,
    extra_columns: dict[str, str],
) -> None:
    stack = importing.stack
    tag = random_hash_id()
    other_list_id = fill_other_list(importing, importer, tag)
    list_id = importing.new_list(importer)
    stack.query(_INSERT_OPT_OUTS, other_list_id, f"%.{tag}@example.com")

    def group_addresses(name: str) -> list[str]:
        return [f"{name}.{number}.{tag}@example.com" for number in range(GROUP_SIZE)]

    def file(rows: dict[str, tuple[str, str]]) -> bytes:
        lines = [
            [each, *cells, *extra_columns.values()]
            for name, cells in rows.items()
            for each in group_addresses(name)
        ]
        return csv_of(lines, header=("email", "name", "status", *extra_columns))

    first_groups = {"active": ("Old", ""), "gone": ("Old", ""), "leaving": ("Old", "")}
    importing.import_members(importer, list_id, file(first_groups))
    stack.query(
        "UPDATE subscriptions SET status = 'removed' WHERE list_id = %s AND email LIKE 'gone%%'",
        list_id,
    )
    for table in TABLES:
        stack.query(f"ANALYZE {table}")
    second_groups = {"active": ("New", ""), "gone": ("New", ""), "new": ("New", "")}
    # The people in the group "other" are already members of another list of the same owner.
    second_groups |= {"leaving": ("", "unsubscribed"), "other": ("New", "")}
    reads = record_reads(monkeypatch)
    task = importing.import_members(importer, list_id, file(second_groups), on_existing="update")

    assert (task.added, task.updated, task.opted_out) == (3 * GROUP_SIZE, GROUP_SIZE, GROUP_SIZE)
    assert [{table for table in chunk if chunk[table].scanned} for chunk in reads] == [set()]


def test_import_row_cost_stays_bounded_without_statistics_for_its_list(
    importing: ImportRunner, importer: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = importing.stack
    tag = random_hash_id()
    fill_other_list(importing, importer, tag)
    list_id = importing.new_list(importer)
    for table in (*TABLES, "former_addresses"):
        stack.query(f"ANALYZE {table}")
    reads = record_reads(monkeypatch)
    header = ("email", "name", "tags", "optin_time")
    for name in ("first", "second"):
        lines = [
            (f"{group}.{number}.{tag}@example.com", name, "a", "2020-01-02")
            for group in ("same", name)
            for number in range(10 * GROUP_SIZE)
        ]
        importing.import_members(
            importer, list_id, csv_of(lines, header=header), on_existing="update"
        )
    assert len(reads) == 2
    members = [chunk["subscriptions"] for chunk in reads]
    assert (
        max(each.scanned + each.looked_up for each in members) < MAX_READS_PER_ROW * 20 * GROUP_SIZE
    )
