"""The plans of all statements that a stack's processes run, as Postgres itself writes them down."""

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
# So many rows are no work for a call.
LARGE = 100_000
# A statement, and how it was run.
Plan = tuple[str, _Node]


@dataclass(frozen=True)
class WholeScan:
    """A part of a plan that reads all of a table, or of what an owner has in it, or may."""

    # The table, the index or what is sorted by.
    read: str
    statement: str


def log_plans(stack: Stack) -> None:
    """From now on each new connection of the application has its plans written to the log.

    Those of functions and of foreign keys are among them. The tests' own connections stay silent.
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
    """Tell the planner that every table and index has so many times its rows.

    Returns the tables and the indexes that are large then. An index of few rows of a large table,
    such as one of unfinished jobs, is small.
    """
    _keep_statistics(stack)
    # There are more lists and people too, of which a row names one.
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
        LARGE,
    )
    return {str(name) for name, is_large in rows if is_large}


def forget_vacuum(stack: Stack) -> None:
    """Tell the planner that no index answers without its table, as just after a large import."""
    _keep_statistics(stack)
    stack.query(
        "UPDATE pg_class SET relallvisible = 0"
        " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )


def _keep_statistics(stack: Stack) -> None:
    tables = (
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    for (table,) in stack.query(tables):
        stack.query(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")


def plans_in(log: Path, start: int) -> Iterator[Plan]:
    """Statement and plan, of what was logged from this byte on."""
    text = log.read_bytes()[start:].decode(errors="replace")
    for found in _PLAN.finditer(text):
        logged = json.loads(re.sub(r"^\t", "", found[1], flags=re.MULTILINE))
        yield logged["Query Text"], logged["Plan"]


def whole_scans(statement: str, plan: _Node, large: set[str]) -> Iterator[WholeScan]:
    """Sequential scans of large tables, and scans of all of an index that no limit ends."""
    for node, is_limited in _nodes(plan, is_limited=False):
        kind = node["Node Type"]
        read = node.get("Relation Name") if kind == "Seq Scan" else node.get("Index Name")
        is_whole = kind == "Seq Scan" or (
            kind in _INDEX_SCANS and "Index Cond" not in node and not is_limited
        )
        if is_whole and read in large:
            yield WholeScan(read, statement)


def filtered_scans(statement: str, plan: _Node) -> Iterator[WholeScan]:
    """Scans in the order of an index, from its end on, of which a filter keeps some rows.

    How soon a limit ends one depends on where the rows are that it wants.
    """
    for node, is_limited in _nodes(plan, is_limited=False):
        is_ordered = node["Node Type"] in _INDEX_SCANS and "Index Cond" not in node
        if is_ordered and is_limited and "Filter" in node:
            yield WholeScan(node["Index Name"], statement)


def large_sorts(statement: str, plan: _Node) -> Iterator[WholeScan]:
    """Sorts of many rows of which few are wanted: their order is that of no index."""
    for node, is_limited in _nodes(plan, is_limited=False):
        if node["Node Type"] == "Sort" and is_limited:
            [below] = node["Plans"]
            if below["Plan Rows"] >= LARGE:
                yield WholeScan(" ".join(node["Sort Key"]), statement)


def _nodes(node: _Node, *, is_limited: bool) -> Iterator[tuple[_Node, bool]]:
    yield node, is_limited
    # A sort and an aggregate read all of their input, whatever is wanted of them.
    kind = node["Node Type"]
    below = (is_limited or kind == "Limit") and kind not in {"Sort", "Aggregate", "Hash"}
    for each in node.get("Plans", []):
        yield from _nodes(each, is_limited=below)
