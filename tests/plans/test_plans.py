"""Tests that no SQL statement of an API call or maintenance task reads a whole large table.

The tests call each API route and run each maintenance task. The database is small, but its
statistics pretend that it has ten times the rows of a platform with 1,000 owners. Postgres logs the
plan of each statement that it executes.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import make_url

from benchmarks.scale.filling import fill
from benchmarks.scale.sized_stack import SizedStack, run_stack
from benchmarks.scale.volume import Volume
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from devstack.supervisor.home_folder import Home
from services.credits import verify
from services.subscriptions import figures_verification
from tests.growth.rounds import measure_round
from tests.support.http.replies import data
from tests.support.stack.plan_log import (
    Plan,
    WholeScan,
    filtered_scans,
    forget_vacuum,
    large_sorts,
    pretend_growth,
    whole_scans,
)

_PLAN = re.compile(r" plan:\n((?:\t.*\n)+)")

pytestmark = pytest.mark.tier("properties")

VOLUME = Volume(0.01)
# The test database has a hundredth of the rows of a platform with 1,000 owners. GROWTH_FACTOR makes
# the database's statistics claim 1,000 times as many rows as the test database really has. The
# statistics thus claim ten times as many rows as a platform with 1,000 owners has.
GROWTH_FACTOR = 1_000
# An import splits a file with MANY_ROWS rows into three chunks.
MANY_ROWS = 25_000
# Maps a part of the text of an SQL statement to the reason why the statement may read a whole large
# table or index.
MAY_READ_ALL = {
    "SELECT users.id FROM users WHERE users.id >": "one batch has a third of the few test users",
    "FROM users JOIN lists ON lists.user_id = users.id WHERE users.id IN": "the test has few users",
    "FROM payment_order_changes AS c WHERE c.created_at <": "it skips only changes of one hour",
    "WITH owners AS MATERIALIZED ( SELECT DISTINCT user_id FROM feed_events": "endpoints are few",
    "SELECT ? FROM opt_outs WHERE list_id = ? LIMIT ?": "the list has half of all opt-outs",
    "AND (subscriptions.email ~>=~ ?)": "the page sorts all members with such an address by id",
}


def log_plans(stack: Stack) -> None:
    """Log the plans of all statements that the application runs on new connections.

    The log also includes the statements that SQL functions run, and the checks of foreign keys.
    Statements that tests run as the owner of the tables aren't logged.
    """
    owner = make_url(stack.owner_url).username
    settings = {
        "session_preload_libraries": "auto_explain",
        "auto_explain.log_min_duration": "0",
        "auto_explain.log_format": "json",
        "auto_explain.log_nested_statements": "on",
    }
    for setting, value in settings.items():
        stack.query(f"ALTER DATABASE {stack.name} SET {setting} = %s", value)
    stack.query(
        f"ALTER ROLE {owner} IN DATABASE {stack.name} SET auto_explain.log_min_duration = -1"
    )


def plans_in(log: Path, start: int) -> Iterator[Plan]:
    """Read the log from byte ``start`` on, and yield each logged statement with its plan."""
    text = log.read_bytes()[start:].decode(errors="replace")
    for match in _PLAN.finditer(text):
        entry = json.loads(re.sub(r"^\t", "", match[1], flags=re.MULTILINE))
        yield entry["Query Text"], entry["Plan"]


@pytest.fixture(scope="module")
def filled_stack(make_stack: Callable[[str], Stack]) -> Stack:
    stack = make_stack("plans")
    fill(stack.owner_url, VOLUME, stack.settings().keyring)
    # Verify the credit ledger once, because only the first verification reads the whole ledger. All
    # verifications after the first read only new entries of the ledger.
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
    assert figures_verification.verify_figures(filled_stack.resources) == []
    for table, column, referenced_table, key in filled_stack.query(FOREIGN_KEYS):
        referenced = f"SELECT 1 FROM {referenced_table} AS o WHERE o.{key} = t.{column}"
        dangling = (
            f"SELECT count(*) FROM {table} AS t WHERE {column} > 0 AND NOT EXISTS ({referenced})"
        )
        assert filled_stack.query(dangling) == [(0,)], (table, column)


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
    with run_stack(filled_stack, VOLUME) as opened:
        yield opened


def collect_all_plans(sized_stack: SizedStack, home: Path) -> list[Plan]:
    """Call all API routes, run all maintenance tasks, and return the plans of all statements."""
    with record_plans(home) as plans:
        calls = [name for _, name, _ in measure_round([sized_stack], [0])]
    assert len(plans) > len(calls) > 60
    return plans


@contextmanager
def record_plans(home: Path) -> Iterator[list[Plan]]:
    """Yield a list, which gets the plans of the block's SQL statements when the block ends."""
    log = Home(home.resolve()).log("postgres")
    start = log.stat().st_size
    plans: list[Plan] = []
    yield plans
    plans += plans_in(log, start)


def import_chunks(sized_stack: SizedStack) -> None:
    """Import a file with several chunks, so that more than one job imports the file."""
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
    """In most tables, the older half of the rows belongs to the test's owner.

    Postgres assumes that the rows of each owner are spread evenly over a table. Postgres may
    therefore plan to read a table backwards from the newest row, and to skip the rows of other
    owners. Reading backwards, Postgres would first read the newer half of the table, although this
    half contains no rows of the test's owner. The test pretends that no table was vacuumed yet.
    """
    forget_vacuum(sized_stack.stack)
    plans = collect_all_plans(sized_stack, home)
    require_no_scans(scan for plan in plans for scan in filtered_scans(*plan))


@pytest.fixture(scope="module")
def large_tables(sized_stack: SizedStack) -> set[str]:
    """The names of the tables and indexes that the Postgres planner believes to be large."""
    return pretend_growth(sized_stack.stack, GROWTH_FACTOR)


def test_no_statement_scans_or_sorts_a_whole_large_table(
    sized_stack: SizedStack, home: Path, large_tables: set[str]
) -> None:
    large = large_tables
    assert {"subscriptions", "jobs", "credit_entries", "users", "pk_jobs"} <= large
    plans = collect_all_plans(sized_stack, home)
    with record_plans(home) as import_plans:
        import_chunks(sized_stack)
    assert any("'members.apply'" in statement for statement, _ in import_plans)
    plans += import_plans
    require_no_scans(scan for plan in plans for scan in whole_scans(*plan, large))
    require_no_scans(sort for plan in plans for sort in large_sorts(*plan))


@pytest.mark.usefixtures("large_tables")
def test_addresses_and_unfinished_work_of_a_large_list_are_found_in_small_indexes(
    sized_stack: SizedStack, home: Path
) -> None:
    with sized_stack.stack.client(sized_stack.owner.key) as client, record_plans(home) as plans:
        path = f"/lists/{sized_stack.list_id}"
        member = data(client.get(f"{path}/subscriptions", params={"email": "ada.adams1*"}))
        member_path = f"{path}/members/{member['items'][0]['user_id']}"
        data(client.patch(member_path, json={"add_tags": ["unused"]}))
        tag_ids = {tag["name"]: tag["id"] for tag in data(client.get(f"{path}/tags"))["items"]}
        data(client.delete(f"{path}/tags/{tag_ids['unused']}"))
    address_plans = [
        plan for statement, plan in plans if "ada.adams1" in statement and "email" in statement
    ]
    assert len(address_plans) == 2
    for plan in address_plans:
        assert "ix_subscriptions_active_email" in str(plan)
        assert "ix_subscriptions_words" not in str(plan)
    [tag_plan] = [plan for statement, plan in plans if "'bulk_action'" in statement]
    assert "ix_bulk_actions_running" in str(tag_plan)
    assert "ix_exports_unfinished" in str(tag_plan)


def require_no_scans(scans: Iterable[WholeScan]) -> None:
    forbidden = {
        f"{scan.read}: {_mask_values(scan.statement)}" for scan in scans if not _is_allowed(scan)
    }
    assert not forbidden, "\n\n".join(sorted(forbidden))


def _is_allowed(scan: WholeScan) -> bool:
    return any(part in _mask_values(scan.statement) for part in MAY_READ_ALL)


def _mask_values(statement: str) -> str:
    """Replace the values in an SQL statement with question marks."""
    return re.sub(r"'[^']*'|\d+", "?", " ".join(statement.split()))
