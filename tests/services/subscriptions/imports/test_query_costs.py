"""How many table rows an import reads to apply one chunk of its file."""

from typing import Any

import pytest
from sqlalchemy import TextClause, text

from core.ids import random_hash_id
from devstack.harness.stack import Owner
from services.subscriptions.imports import applying
from tests.support.imports.importing import Importing, csv_of

OTHERS = 20_000
GROUP = 100
TABLES = ("opt_outs", "subscriptions", "users")

_PEOPLE = """
    INSERT INTO users (id, email)
    SELECT 8000000000000000 + (random() * 900000000000000)::bigint, 'other.' || n || %s
    FROM generate_series(1, %s) AS n
"""
_MEMBERS = """
    INSERT INTO subscriptions (list_id, user_id, status, email, source)
    SELECT %s, id, 'active', email, 'import' FROM users WHERE email LIKE %s
"""
_OPT_OUTS = """
    INSERT INTO opt_outs (list_id, user_id, address_hmac, kind, source)
    SELECT %s, id, sha256(email::bytea), 'email', 'page' FROM users WHERE email LIKE %s
"""
_FETCHED = text(
    "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables"
    " WHERE relname = 'subscriptions'"
)
# Of the rows that a chunk looks up, writes and claims something about, each a few times.
MOST_FETCHED_A_ROW = 20
_READ_WHOLE = text(
    "SELECT relname, seq_tup_read FROM pg_stat_xact_user_tables"
    " WHERE seq_tup_read > 0 AND relname IN ('opt_outs', 'subscriptions', 'users')"
)


def after_each_chunk(monkeypatch: pytest.MonkeyPatch, query: TextClause) -> list[Any]:
    """What the query finds in the transaction of each chunk, once the chunk is applied."""
    found: list[Any] = []
    apply_chunk = applying.apply_chunk

    def watched(uow: Any, *others: Any) -> Any:
        applied = apply_chunk(uow, *others)
        found.append(uow.session.execute(query).all())
        return applied

    monkeypatch.setattr(applying, "apply_chunk", watched)
    return found


@pytest.mark.parametrize(
    "more", [{}, {"tags": "a,b", "created_at": "2020-01-01", "optin_time": "2020-01-02"}]
)
def test_import_chunk_scans_no_table_completely(
    importing: Importing, importer: Owner, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    stack, tag = importing.stack, random_hash_id()
    other, list_id = importing.new_list(importer), importing.new_list(importer)
    stack.query(_PEOPLE, f".{tag}@example.com", OTHERS)
    stack.query(_MEMBERS, other, f"%.{tag}@example.com")
    stack.query(_OPT_OUTS, other, f"%.{tag}@example.com")

    def group(name: str) -> list[str]:
        return [f"{name}.{number}.{tag}@example.com" for number in range(GROUP)]

    def file(rows: dict[str, tuple[str, str]]) -> bytes:
        lines = [
            [each, *cells, *more.values()] for name, cells in rows.items() for each in group(name)
        ]
        return csv_of(lines, header=("email", "name", "status", *more))

    before = {"active": ("Old", ""), "gone": ("Old", ""), "leaving": ("Old", "")}
    importing.bring(importer, list_id, file(before))
    stack.query(
        "UPDATE subscriptions SET status = 'removed' WHERE list_id = %s AND email LIKE 'gone%%'",
        list_id,
    )
    for table in TABLES:
        stack.query(f"ANALYZE {table}")
    now = {"active": ("New", ""), "gone": ("New", ""), "new": ("New", "")}
    # Of the other list, and known already.
    now |= {"leaving": ("", "unsubscribed"), "other": ("New", "")}
    read_whole = after_each_chunk(monkeypatch, _READ_WHOLE)
    task = importing.bring(importer, list_id, file(now), on_existing="update")

    assert (task.added, task.updated, task.opted_out) == (3 * GROUP, GROUP, GROUP)
    assert read_whole == [[]]


def test_import_row_cost_stays_bounded_without_statistics_for_its_list(
    importing: Importing, importer: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, tag = importing.stack, random_hash_id()
    other, list_id = importing.new_list(importer), importing.new_list(importer)
    stack.query(_PEOPLE, f".{tag}@example.com", OTHERS)
    stack.query(_MEMBERS, other, f"%.{tag}@example.com")
    for table in (*TABLES, "former_addresses"):
        stack.query(f"ANALYZE {table}")
    fetched = after_each_chunk(monkeypatch, _FETCHED)
    header = ("email", "name", "tags", "optin_time")
    for name in ("first", "second"):
        lines = [
            (f"{who}.{number}.{tag}@example.com", name, "a", "2020-01-02")
            for who in ("same", name)
            for number in range(10 * GROUP)
        ]
        importing.bring(importer, list_id, csv_of(lines, header=header), on_existing="update")
    assert len(fetched) == 2
    assert max(rows for [(rows,)] in fetched) < MOST_FETCHED_A_ROW * 20 * GROUP
