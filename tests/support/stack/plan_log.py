"""Makes Postgres log the plan of each SQL statement that a stack runs, and finds slow plans."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from devstack.harness.stack import Stack

_INDEX_SCANS = {"Index Scan", "Index Only Scan", "Bitmap Index Scan"}
_Node = dict[str, Any]
# A table or index counts as large if it has at least this many rows. An API call must not read a
# large table completely.
LARGE_ROW_COUNT = 100_000
# The text of an SQL statement, and the statement's plan.
Plan = tuple[str, _Node]


@dataclass(frozen=True)
class WholeScan:
    """A node of a query plan that may read a whole table, or all rows of an owner in a table."""

    # The name of the table or index that the node of the query plan reads. For a Sort node, the
    # columns by which the node sorts.
    read: str
    statement: str


def pretend_growth(stack: Stack, times: int) -> set[str]:
    """Make the planner assume that each table and index has ``times`` as many rows as in reality.

    Return the names of the tables and indexes that are large with the assumed number of rows. A
    partial index on a large table, such as an index of the unfinished jobs, may be small.
    """
    _keep_statistics(stack)
    # Also raise the number of distinct values in each id column, because a larger database contains
    # more lists and people, not only more rows per list.
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
    """Make the planner assume that index-only scans must read the table, as after an import."""
    _keep_statistics(stack)
    stack.query(
        "UPDATE pg_class SET relallvisible = 0"
        " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )


def _keep_statistics(stack: Stack) -> None:
    """Turn autovacuum off, because it would overwrite the statistics that the test has changed."""
    tables = (
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    for (table,) in stack.query(tables):
        stack.query(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")


def whole_scans(statement: str, plan: _Node, large: set[str]) -> Iterator[WholeScan]:
    """Find scans that completely read a large table or a large index.

    The function ignores an index scan that a LIMIT can stop early.
    """
    for node, is_limited in _walk_nodes(plan, is_limited=False):
        kind = node["Node Type"]
        name = node.get("Relation Name") if kind == "Seq Scan" else node.get("Index Name")
        is_whole = kind == "Seq Scan" or (
            kind in _INDEX_SCANS and "Index Cond" not in node and not is_limited
        )
        if is_whole and name in large:
            yield WholeScan(name, statement)


def filtered_scans(statement: str, plan: _Node) -> Iterator[WholeScan]:
    """Find scans with a LIMIT that read an index until enough rows match a filter.

    If only rows at the end of the index match the filter, Postgres reads the whole index.
    """
    for node, is_limited in _walk_nodes(plan, is_limited=False):
        is_ordered = node["Node Type"] in _INDEX_SCANS and "Index Cond" not in node
        if is_ordered and is_limited and "Filter" in node:
            yield WholeScan(node["Index Name"], statement)


def large_sorts(statement: str, plan: _Node) -> Iterator[WholeScan]:
    """Find Sort nodes that sort many rows, although a LIMIT needs only the first few of them.

    With an index on the sorted columns, Postgres would read only the rows that the LIMIT allows.
    """
    for node, is_limited in _walk_nodes(plan, is_limited=False):
        if node["Node Type"] == "Sort" and is_limited:
            [child] = node["Plans"]
            if child["Plan Rows"] >= LARGE_ROW_COUNT:
                yield WholeScan(" ".join(node["Sort Key"]), statement)


def _walk_nodes(node: _Node, *, is_limited: bool) -> Iterator[tuple[_Node, bool]]:
    """Yield each node of a plan, and whether a LIMIT in the plan can stop the node early."""
    yield node, is_limited
    # A Sort, an Aggregate and a Hash node always read all rows of their child nodes.
    kind = node["Node Type"]
    is_child_limited = (is_limited or kind == "Limit") and kind not in {"Sort", "Aggregate", "Hash"}
    for each in node.get("Plans", []):
        yield from _walk_nodes(each, is_limited=is_child_limited)
