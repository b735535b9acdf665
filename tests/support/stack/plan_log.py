"""Makes Postgres log the plan of each statement that a stack runs, and finds expensive plans."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from devstack.harness.stack import Stack

_PLAN = re.compile(r" plan:\n((?:\t.*\n)+)")
_INDEX_SCANS = {"Index Scan", "Index Only Scan", "Bitmap Index Scan"}
_Node = dict[str, Any]
# A call must not read this number of rows.
LARGE_ROW_COUNT = 100_000
# A statement and its plan.
Plan = tuple[str, _Node]


@dataclass(frozen=True)
class WholeScan:
    """A part of a plan that may read a whole table, or all rows of an owner in a table."""

    # The name of the table or index, or the sort key.
    read: str
    statement: str


def log_plans(stack: Stack) -> None:
    """Log the plans of all statements on new connections of the application.

    The log includes the plans of functions and foreign keys, but no statements of the tests.
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


def pretend_growth(stack: Stack, times: int) -> set[str]:
    """Multiply the numbers of rows that the planner assumes, for all tables and indexes.

    Return the names of the tables and indexes that are large afterwards. An index that contains
    only some rows of a large table, such as the unfinished jobs, may be small.
    """
    _keep_statistics(stack)
    # Raise the numbers of different ids too, because a larger database has more lists and people.
    stack.query(
        "UPDATE pg_statistic SET stadistinct = -stadistinct / reltuples FROM pg_class, pg_attribute"
        " WHERE pg_class.oid = starelid AND attrelid = starelid AND attnum = staattnum"
        " AND stadistinct > 0 AND reltuples > 0 AND attname ~ '_id$'"
    )
    rows = stack.query(
        "UPDATE pg_class SET reltuples = reltuples * %s WHERE relkind IN ('r', 'i')"
        " AND relnamespace = 'public'::regnamespace AND reltuples > 0"
        " RETURNING relname, reltuples >= %s",
        times,
        LARGE_ROW_COUNT,
    )
    return {str(name) for name, is_large in rows if is_large}


def forget_vacuum(stack: Stack) -> None:
    """Make the planner assume that index-only scans read the table, as after a large import."""
    _keep_statistics(stack)
    stack.query(
        "UPDATE pg_class SET relallvisible = 0"
        " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )


def _keep_statistics(stack: Stack) -> None:
    """Turn autovacuum off, because it would replace the changed statistics."""
    tables = (
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    for (table,) in stack.query(tables):
        stack.query(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")


def plans_in(log: Path, start: int) -> Iterator[Plan]:
    """Yield each statement and its plan in the log after the first ``start`` bytes."""
    text = log.read_bytes()[start:].decode(errors="replace")
    for match in _PLAN.finditer(text):
        entry = json.loads(re.sub(r"^\t", "", match[1], flags=re.MULTILINE))
        yield entry["Query Text"], entry["Plan"]


def whole_scans(statement: str, plan: _Node, large: set[str]) -> Iterator[WholeScan]:
    """Yield sequential scans of large tables, and scans of whole large indexes without a limit."""
    for node, is_limited in _walk_nodes(plan, is_limited=False):
        kind = node["Node Type"]
        name = node.get("Relation Name") if kind == "Seq Scan" else node.get("Index Name")
        is_whole = kind == "Seq Scan" or (
            kind in _INDEX_SCANS and "Index Cond" not in node and not is_limited
        )
        if is_whole and name in large:
            yield WholeScan(name, statement)


def filtered_scans(statement: str, plan: _Node) -> Iterator[WholeScan]:
    """Yield scans that read an index from one end, and filter the rows until a limit is reached.

    The number of rows that such a scan reads depends on the places of the matching rows.
    """
    for node, is_limited in _walk_nodes(plan, is_limited=False):
        is_ordered = node["Node Type"] in _INDEX_SCANS and "Index Cond" not in node
        if is_ordered and is_limited and "Filter" in node:
            yield WholeScan(node["Index Name"], statement)


def large_sorts(statement: str, plan: _Node) -> Iterator[WholeScan]:
    """Yield sorts of many rows before a limit. No index provides the order of these rows."""
    for node, is_limited in _walk_nodes(plan, is_limited=False):
        if node["Node Type"] == "Sort" and is_limited:
            [child] = node["Plans"]
            if child["Plan Rows"] >= LARGE_ROW_COUNT:
                yield WholeScan(" ".join(node["Sort Key"]), statement)


def _walk_nodes(node: _Node, *, is_limited: bool) -> Iterator[tuple[_Node, bool]]:
    """Yield each node of a plan, and whether a limit above it can end it early."""
    yield node, is_limited
    # A sort, an aggregate and a hash always read all of their input.
    kind = node["Node Type"]
    is_child_limited = (is_limited or kind == "Limit") and kind not in {"Sort", "Aggregate", "Hash"}
    for each in node.get("Plans", []):
        yield from _walk_nodes(each, is_limited=is_child_limited)
