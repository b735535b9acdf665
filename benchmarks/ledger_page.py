"""First and last page of a long ledger beside the same query alone."""

import http.client
from collections.abc import Callable
from contextlib import closing
from statistics import median
from urllib.parse import urlencode

import psycopg2
from psycopg2.extensions import cursor

from benchmarks.measure import Finding, alternate, full_size, median_and_spread, seconds_of
from benchmarks.own_stack import own_stack
from devstack import LOOPBACK
from devstack.harness.stack import Owner, Stack
from services.credits import ledger_pages, verify

ENTRIES = 1_000_000 if full_size() else 200_000
ROUNDS = 15 if full_size() else 7
# A round is the quickest of so many, since whatever else the machine does can only add.
CALLS = 30
LIMIT = 16
MOST_TIMES = 1.5
# The cost of HTTP itself, as for a page of members: the query alone takes a fraction of it.
ALLOWANCE_SECONDS = 0.003
BAR = "≤ 1.5 × + 3 ms"
# As ``credit_append`` writes them, without moving the account each time: a row that moves a million
# times in one transaction leaves a million versions to look through.
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
            connection.cursor() as running,
        ):
            connection.autocommit = True
            _fill(stack, running, owner)
            pages = (("first", 0), ("last", ENTRIES - LIMIT))
            return [_compare(stack, owner, running, *page) for page in pages]


def _fill(stack: Stack, running: cursor, owner: Owner) -> None:
    running.execute(_FILL.format(user_id=owner.user_id, entries=ENTRIES))
    running.execute("VACUUM ANALYZE credit_entries")
    assert verify.verify_ledger(stack.resources, full=True).faults == []


def _compare(stack: Stack, owner: Owner, running: cursor, name: str, offset: int) -> Finding:
    statement = _statement(running, owner, offset)

    def baseline() -> None:
        running.execute(statement)
        assert len(running.fetchall()) >= LIMIT

    with closing(http.client.HTTPConnection(LOOPBACK, stack.api_port, 60)) as kept:
        path = f"/auxilia/credits/ledger?{urlencode({'offset': offset})}"

        def get() -> None:
            kept.request("GET", path, headers={"Authorization": f"Bearer {owner.key}"})
            reply = kept.getresponse()
            body = reply.read()
            assert reply.status == http.client.OK, body

        pairs = alternate(lambda: _round(get), lambda: _round(baseline), rounds=ROUNDS)
    # The allowance is taken off first, so that one figure says whether the bar is met.
    ratio, spread = median_and_spread([(mine - ALLOWANCE_SECONDS) / sql for mine, sql in pairs])
    details = {
        "entries": ENTRIES,
        "product_ms": round(1000 * median(mine for mine, _ in pairs), 2),
        "sql_ms": round(1000 * median(sql for _, sql in pairs), 2),
    }
    return Finding(f"ledger-page: {name}", ratio, "×", BAR, ratio <= MOST_TIMES, spread, details)


def _round(action: Callable[[], object]) -> float:
    return min(seconds_of(action) for _ in range(CALLS))


def _statement(running: cursor, owner: Owner, offset: int) -> bytes:
    """Return the query that the service sends to Postgres, word for word."""
    values = {"user_id": owner.user_id, "offset": offset, "limit": LIMIT + 1, "before": None}
    return running.mogrify(ledger_pages.PAGE.text, values)
