import binascii
import os
import signal
import time
from collections.abc import Callable

import pytest

from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Stack
from tests.support.probe.tending import TABLES, TEND
from tests.support.sizes import sized

pytestmark = pytest.mark.slow


@pytest.fixture
def maintenance_stack(make_stack: Callable[[str], Stack], request: pytest.FixtureRequest) -> Stack:
    stack = make_stack(f"tended-{binascii.crc32(request.node.name.encode()):08x}")
    stack.query(TABLES)
    return stack


def start_worker(stack: Stack) -> Running:
    return stack.start_worker("bulk", concurrency=2, module="tests.support.probe.tending")


def count_ended_runs(stack: Stack) -> int:
    [(count,)] = stack.query("SELECT count(*) FROM tended WHERE ended_at IS NOT NULL")
    assert isinstance(count, int)
    return count


def find_overlaps(stack: Stack) -> object:
    """Return all pairs of maintenance runs that overlapped in time.

    A run whose worker was killed is ignored, because the end of such a run is never recorded.
    """
    return stack.query(
        "SELECT a.id, b.id FROM tended a JOIN tended b ON a.id < b.id AND b.began_at < a.ended_at"
    )


def test_maintenance_continues_without_overlap_despite_killed_workers_and_lost_messages(
    maintenance_stack: Stack,
) -> None:
    """Every three seconds, all messages in Redis are lost and one of the two workers is killed."""
    began_at = time.monotonic()
    start_worker(maintenance_stack)
    killed_worker = start_worker(maintenance_stack)
    for _ in range(sized(3, 20)):
        time.sleep(3)
        maintenance_stack.resources.redis.flushdb()
        killed_worker.kill()
        killed_worker = start_worker(maintenance_stack)
    ended_runs = count_ended_runs(maintenance_stack)
    eventually(
        lambda: count_ended_runs(maintenance_stack) > ended_runs + 1,
        what="two runs after the last kill",
    )
    maintenance_stack.stop()
    assert find_overlaps(maintenance_stack) == []
    assert (
        count_ended_runs(maintenance_stack)
        <= (time.monotonic() - began_at) / TEND.every.total_seconds() + 2
    )


def test_maintenance_run_of_killed_worker_is_taken_over(maintenance_stack: Stack) -> None:
    maintenance_stack.query("UPDATE tending SET seconds = 300")
    first = start_worker(maintenance_stack)
    eventually(lambda: maintenance_stack.query("SELECT 1 FROM tended"), what="a run")
    [(pid,)] = maintenance_stack.query("SELECT pid FROM tended")
    maintenance_stack.query("UPDATE tending SET seconds = 0")
    start_worker(maintenance_stack)
    os.killpg(first.pid, signal.SIGKILL)
    eventually(
        lambda: count_ended_runs(maintenance_stack) > 0,
        within=30,
        what="a run by the other worker",
    )
    assert (
        maintenance_stack.query("SELECT 1 FROM tended WHERE ended_at IS NOT NULL AND pid = %s", pid)
        == []
    )


def test_failing_maintenance_does_not_stop_other_maintenance(maintenance_stack: Stack) -> None:
    maintenance_stack.query("UPDATE tending SET fails = true")
    start_worker(maintenance_stack)
    maintenance_stack.start_worker("maintenance")
    error = "SELECT last_error FROM maintenance WHERE name = %s AND last_error IS NOT NULL"
    errors = eventually(
        lambda: maintenance_stack.query(error, TEND.name), what="the error in the row"
    )
    assert errors == [("ValueError: told to fail",)]
    ended = (
        "SELECT count(*) FROM maintenance WHERE last_error IS NULL AND last_finished_at IS NOT NULL"
    )
    eventually(
        lambda: int(str(maintenance_stack.query(ended)[0][0])) >= 6,
        within=60,
        what="all other maintenance",
    )
    maintenance_stack.query("UPDATE tending SET fails = false")
    eventually(lambda: count_ended_runs(maintenance_stack) > 0, what="a successful run")
