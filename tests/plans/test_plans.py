"""No statement reads all of a large table, whatever a caller asks for and whatever is due.

Each route is called once, and each kind of upkeep runs once, on a small database whose statistics
say that it has ten times the rows of today's platform. Postgres logs each plan as it runs it.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.scale.filling import fill
from benchmarks.scale.rounds import one_round
from benchmarks.scale.sized_stack import running
from benchmarks.scale.volume import Volume
from devstack.supervisor.home.home_folder import Home
from tests.plans.plan_log import WholeScan, log_plans, plans_in, pretend_growth, whole_scans
from tests.stack import Stack

VOLUME = Volume(0.01)
# Together with what the volume has: ten times the rows of a platform with 1,000 owners.
TIMES = 1_000


@pytest.fixture(scope="module")
def filled(make_stack: Callable[[str], Stack]) -> Stack:
    stack = make_stack("plans")
    fill(stack.owner_url, VOLUME, stack.settings().keyring)
    return stack


def test_no_statement_reads_all_of_a_large_table(filled: Stack, home: Path) -> None:
    log = Home(home.resolve()).log("postgres")
    large = pretend_growth(filled, TIMES)
    assert {"subscriptions", "jobs", "credit_entries", "subscription_events", "users"} <= large
    log_plans(filled)
    with running(filled, VOLUME) as sized:
        start = log.stat().st_size
        calls = [name for _, name, _ in one_round([sized], [0])]
    plans = list(plans_in(log, start))
    assert len(plans) > len(calls) > 60
    found = {scan for plan in plans for scan in whole_scans(*plan, large)}
    assert not found, _told(found)


def _told(found: set[WholeScan]) -> str:
    """Each statement once, whatever its values."""
    lines = {f"{scan.read}: {_shape(scan.statement)}" for scan in found}
    return "\n\n".join(sorted(lines))


def _shape(statement: str) -> str:
    return re.sub(r"'[^']*'|\d+", "?", " ".join(statement.split()))[:600]
