"""No statement reads all of a large table, whatever a caller asks for and whatever is due.

Each route is called once, and each kind of maintenance runs once, on a small database whose
statistics say that it has ten times the rows of today's platform. Postgres logs each plan as it
runs it.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.scale.filling import fill
from benchmarks.scale.sized_stack import SizedStack, run_stack
from benchmarks.scale.volume import Volume
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from devstack.supervisor.home_folder import Home
from services.credits import verify
from services.subscriptions import daily_figures
from tests.growth.rounds import measure_round
from tests.support.http.replies import data
from tests.support.stack.plan_log import (
    Plan,
    WholeScan,
    filtered_scans,
    forget_vacuum,
    large_sorts,
    log_plans,
    plans_in,
    pretend_growth,
    whole_scans,
)

pytestmark = pytest.mark.tier("properties")

VOLUME = Volume(0.01)
# Together with what the volume has: ten times the rows of a platform with 1,000 owners.
TIMES = 1_000
# Of three chunks of an import.
MANY_ROWS = 25_000
# Statements that may read such a table or index, by a part of each, and why.
MAY_READ_ALL = {
    "SELECT users.id FROM users WHERE users.id >": "a batch of people is a third of these few",
    "FROM users JOIN lists ON lists.user_id = users.id WHERE users.id IN": "so are all owners",
    "FROM payment_order_changes AS c WHERE c.created_at <": "what it passes over is of an hour",
    "WITH owners AS MATERIALIZED ( SELECT DISTINCT user_id FROM feed_events": "endpoints are few",
    "SELECT ? FROM opt_outs WHERE list_id = ? LIMIT ?": "half of all are of the one list",
}


@pytest.fixture(scope="module")
def filled_stack(make_stack: Callable[[str], Stack]) -> Stack:
    stack = make_stack("plans")
    fill(stack.owner_url, VOLUME, stack.settings().keyring)
    # The first run reads the whole ledger, and the others what is new.
    assert verify.verify_ledger(stack.resources, full=False).faults == []
    return stack


def test_generated_benchmark_rows_are_consistent_with_product_invariants(
    filled_stack: Stack,
) -> None:
    assert verify.verify_ledger(filled_stack.resources, full=True).faults == []
    wrong_counts = """
        SELECT list_id FROM subscriber_counts AS c FULL JOIN (
            SELECT list_id, count(*) AS active FROM subscriptions WHERE status = 'active'
            GROUP BY list_id) AS s USING (list_id)
        WHERE c.active IS DISTINCT FROM s.active
    """
    assert not filled_stack.query(wrong_counts)
    assert daily_figures.verify_figures(filled_stack.resources) == []
    for table, column, other, key in filled_stack.query(FOREIGN_KEYS):
        missing = f"SELECT 1 FROM {other} AS o WHERE o.{key} = t.{column}"
        lost = f"SELECT count(*) FROM {table} AS t WHERE {column} > 0 AND NOT EXISTS ({missing})"
        assert filled_stack.query(lost) == [(0,)], (table, column)


FOREIGN_KEYS = """
SELECT f.conrelid::regclass::text, a.attname::text, f.confrelid::regclass::text, k.attname::text
FROM pg_constraint AS f
JOIN pg_attribute AS a ON a.attrelid = f.conrelid AND a.attnum = f.conkey[1]
JOIN pg_attribute AS k ON k.attrelid = f.confrelid AND k.attnum = f.confkey[1]
WHERE f.contype = 'f' AND a.atttypid = 'bigint'::regtype AND f.conparentid = 0
"""


@pytest.fixture(scope="module")
def sized_stack(filled_stack: Stack) -> Iterator[SizedStack]:
    log_plans(filled_stack)
    with run_stack(filled_stack, VOLUME) as found:
        yield found


def plans_of_all(sized_stack: SizedStack, home: Path) -> list[Plan]:
    """The plans of what one call of each route runs, and one run of each kind of maintenance."""
    with plans_meanwhile(home) as plans:
        calls = [name for _, name, _ in measure_round([sized_stack], [0])]
    assert len(plans) > len(calls) > 60
    return plans


@contextmanager
def plans_meanwhile(home: Path) -> Iterator[list[Plan]]:
    """A list that is filled when the block ends."""
    log = Home(home.resolve()).log("postgres")
    start = log.stat().st_size
    plans: list[Plan] = []
    yield plans
    plans += plans_in(log, start)


def import_chunks(sized_stack: SizedStack) -> None:
    """Import a file that is applied in parts, by several jobs."""
    rows = "".join(f"chunks{number}@example.org\n" for number in range(MANY_ROWS))
    with sized_stack.stack.client(sized_stack.owner.key) as client:
        path = f"/lists/{sized_stack.list_id}/imports"
        job = data(client.post(path, content=f"email\n{rows}"), 202)
        path = f"/jobs/{job['id']}"
        eventually(
            lambda: data(client.get(path))["status"] == "succeeded", within=120, what="the import"
        )


def test_no_page_query_filters_through_rows_of_other_owners(
    sized_stack: SizedStack, home: Path
) -> None:
    """One owner has half of most rows, the older half, and none of it was vacuumed yet.

    Postgres takes them to be spread evenly: to read a table from its newest row on, and to filter,
    looks cheap, and reads all that others have written since.
    """
    forget_vacuum(sized_stack.stack)
    plans = plans_of_all(sized_stack, home)
    require_none(scan for plan in plans for scan in filtered_scans(*plan))


def test_no_statement_scans_or_sorts_a_whole_large_table(
    sized_stack: SizedStack, home: Path
) -> None:
    large = pretend_growth(sized_stack.stack, TIMES)
    assert {"subscriptions", "jobs", "credit_entries", "users", "pk_jobs"} <= large
    plans = plans_of_all(sized_stack, home)
    with plans_meanwhile(home) as of_chunks:
        import_chunks(sized_stack)
    assert any("'members.apply'" in statement for statement, _ in of_chunks)
    plans += of_chunks
    require_none(scan for plan in plans for scan in whole_scans(*plan, large))
    require_none(sort for plan in plans for sort in large_sorts(*plan))


def require_none(scans: Iterable[WholeScan]) -> None:
    refused = {f"{scan.read}: {_shape(scan.statement)}" for scan in scans if not _may(scan)}
    assert not refused, "\n\n".join(sorted(refused))


def _may(scan: WholeScan) -> bool:
    return any(part in _shape(scan.statement) for part in MAY_READ_ALL)


def _shape(statement: str) -> str:
    """The statement without its values."""
    return re.sub(r"'[^']*'|\d+", "?", " ".join(statement.split()))
