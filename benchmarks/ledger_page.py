"""Compares how fast the API and plain SQL read the first and last page of a long credit ledger."""

import http.client
from collections.abc import Callable
from contextlib import closing
from urllib.parse import urlencode

import psycopg2
from psycopg2.extensions import cursor

from benchmarks.measure import Finding, TimeLimit, alternate, is_full_size, measure_seconds
from benchmarks.own_stack import own_stack
from devstack import LOOPBACK
from devstack.harness.stack import Owner, Stack
from services.credits import ledger_pages, verify

ENTRIES = 1_000_000 if is_full_size() else 200_000
ROUNDS = 15 if is_full_size() else 7
# The number of repetitions of a request or a query in each round. The result of a round is its
# fastest repetition, because other programs can only slow down a repetition.
CALLS = 30
LIMIT = 16
PAGE_LIMIT = TimeLimit(factor=1.5, allowance_ms=3)
# An SQL statement that writes the same ledger entries as ``credit_append``, but updates the account
# only once at the end. Updating the account for each of a million entries in one transaction would
# leave a million row versions.
_FILL = """
DO $$
DECLARE
    entry credit_entries;
    before bytea := sha256('');
BEGIN
    entry.user_id := {user_id};
    entry.action := 'grant';
    entry.amount := 1;
    entry.delta := 1;
    entry.source_type := 'operator';
    FOR number IN 1..{entries} LOOP
        entry.seq := number;
        entry.balance_after := number;
        entry.source_id := number::text;
        entry.created_at := clock_timestamp();
        entry.hash := credit_entry_hash(before, entry);
        before := entry.hash;
        INSERT INTO credit_entries (user_id, seq, action, amount, delta, balance_after, source_type,
            source_id, hash, created_at)
        VALUES (entry.user_id, entry.seq, entry.action, entry.amount, entry.delta,
            entry.balance_after, entry.source_type, entry.source_id, entry.hash, entry.created_at);
    END LOOP;
    INSERT INTO credit_accounts (user_id, balance, last_seq, last_hash)
    VALUES ({user_id}, {entries}, {entries}, before);
END
$$
"""


def run() -> list[Finding]:
    with own_stack("ledger") as stack:
        stack.start_api(PRESSROOM_LOG_LEVEL="warning")
        owner = stack.create_owner()
        with (
            closing(psycopg2.connect(stack.owner_url)) as connection,
            connection.cursor() as sql,
        ):
            connection.autocommit = True
            _fill_ledger(stack, sql, owner)
            pages = (("first", 0), ("last", ENTRIES - LIMIT))
            return [_compare(stack, owner, sql, *page) for page in pages]


def _fill_ledger(stack: Stack, sql: cursor, owner: Owner) -> None:
    sql.execute(_FILL.format(user_id=owner.user_id, entries=ENTRIES))
    sql.execute("VACUUM ANALYZE credit_entries")
    assert verify.verify_ledger(stack.resources, full=True).faults == []


def _compare(stack: Stack, owner: Owner, sql: cursor, name: str, offset: int) -> Finding:
    statement = _page_statement(sql, owner, offset)

    def baseline() -> None:
        sql.execute(statement)
        assert len(sql.fetchall()) >= LIMIT

    with closing(http.client.HTTPConnection(LOOPBACK, stack.api_port, 60)) as api:
        path = f"/auxilia/credits/ledger?{urlencode({'offset': offset})}"

        def get() -> None:
            api.request("GET", path, headers={"Authorization": f"Bearer {owner.key}"})
            reply = api.getresponse()
            body = reply.read()
            assert reply.status == http.client.OK, body

        pairs = alternate(lambda: _run_round(get), lambda: _run_round(baseline), rounds=ROUNDS)
    return PAGE_LIMIT.build_finding(f"ledger-page: {name}", pairs, entries=ENTRIES)


def _run_round(action: Callable[[], object]) -> float:
    return min(measure_seconds(action) for _ in range(CALLS))


def _page_statement(sql: cursor, owner: Owner, offset: int) -> bytes:
    """Return the SQL query with which Pressroom reads a page of the ledger."""
    values = {"user_id": owner.user_id, "offset": offset, "limit": LIMIT + 1, "before": None}
    return sql.mogrify(ledger_pages.PAGE.text, values)
