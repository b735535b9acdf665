"""The lines about tasks in a worker's log, at the default log level."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from core.queues import Queue
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Stack
from storage.redis.canaries import Canaries
from tests.support.http.replies import data, send
from tests.support.probe import tending
from tests.support.probe.tending import TEND
from tests.support.stack.maintenance_kinds import MAINTENANCE_SECONDS
from workers.canary_task import CANARY
from workers.task_log import SLOW_TASK_SECONDS

MAX_IDLE_LINES_PER_HOUR = 100
CANARIES_PER_HOUR = 360 * len(Queue)
TASK_LINE = re.compile(r"Task (?P<task>[\w.]+)\[[\w-]+\] (?P<outcome>received|succeeded in (.+)s:)")


def read_events(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def find_task_lines(log: Path, task: str) -> list[str]:
    """Return the outcome, such as ``received``, in each line about a task."""
    matches = (TASK_LINE.match(event["event"]) for event in read_events(log))
    return [match["outcome"] for match in matches if match and match["task"] == task]


def find_fast_task_lines(log: Path, task: str) -> list[str]:
    """Return the outcomes of a task, except successful runs that a busy machine made slow."""
    return [
        outcome
        for outcome in find_task_lines(log, task)
        if outcome == "received" or float(outcome.split()[-1][:-2]) < SLOW_TASK_SECONDS
    ]


def test_idle_workers_log_at_most_100_lines_per_hour(stack: Stack) -> None:
    def has_run_everything() -> bool:
        rows = stack.query("SELECT name FROM maintenance WHERE last_finished_at IS NOT NULL")
        ages = Canaries(stack.resources.redis).read_ages()
        has_canaries = all(queue in ages and ages[queue].version for queue in Queue)
        return has_canaries and {name for (name,) in rows} >= MAINTENANCE_SECONDS.keys()

    eventually(has_run_everything, what="a run of each periodic task")
    logs = [each.log for each in stack.processes if each.name.startswith("worker")]
    runs_per_hour = {name: 3600 / seconds for name, seconds in MAINTENANCE_SECONDS.items()}
    logged = {
        task: runs
        for task, runs in {**runs_per_hour, CANARY: CANARIES_PER_HOUR}.items()
        if any(find_fast_task_lines(log, task) for log in logs)
    }
    # A logged run of a task has two lines: the task was received, and it succeeded.
    assert sum(2 * runs for runs in logged.values()) <= MAX_IDLE_LINES_PER_HOUR, logged


def test_workers_log_the_start_and_end_of_users_jobs(stack: Stack, client: httpx2.Client) -> None:
    data(send(client, prefer="wait=60"))
    [log] = [each.log for each in stack.processes if each.name.startswith("worker-media")]
    eventually(
        lambda: (
            {"received", "succeeded"}
            <= {outcome.split()[0] for outcome in find_task_lines(log, "attachment.process")}
        ),
        what="the lines about the conversion",
    )


@pytest.fixture(scope="module")
def tended_stack(make_stack: Callable[[str], Stack]) -> Stack:
    """A test stack without processes, for workers with the periodic task `probe.tend`."""
    stack = make_stack("task-log")
    stack.query(tending.TABLES)
    return stack


@pytest.fixture
def start_tending(tended_stack: Stack) -> Iterator[Callable[..., Running]]:
    """A function that starts a worker whose periodic task takes ``seconds``, or fails."""

    def start(*, seconds: float = 0, fails: bool = False, **environment: str) -> Running:
        tended_stack.query("UPDATE tending SET seconds = %s, fails = %s", seconds, fails)
        module = "tests.support.probe.tending"
        return tended_stack.start_worker("bulk", concurrency=2, module=module, **environment)

    yield start
    for worker in tended_stack.processes:
        worker.destroy()
    tended_stack.processes.clear()


@pytest.mark.tier("processes")
def test_slow_run_of_a_periodic_task_is_logged_with_its_duration(
    start_tending: Callable[..., Running],
) -> None:
    worker = start_tending(seconds=SLOW_TASK_SECONDS)
    outcomes = eventually(lambda: find_task_lines(worker.log, TEND.name), what="the slow run")
    assert all(outcome.startswith("succeeded in ") for outcome in outcomes)


@pytest.mark.tier("processes")
def test_failed_run_of_a_periodic_task_is_logged_with_its_traceback(
    start_tending: Callable[..., Running],
) -> None:
    worker = start_tending(fails=True)

    def find_failures() -> list[dict[str, Any]]:
        events = read_events(worker.log)
        return [event for event in events if event["event"] == "maintenance.failed"]

    [failure, *_] = eventually(find_failures, what="the failed run")
    assert (failure["level"], failure["maintenance"]) == ("error", TEND.name)
    assert "told to fail" in failure["exception"]
    celery_line = f"Task {TEND.name}["
    eventually(
        lambda: any(
            event["event"].startswith(celery_line) and "TaskFailed" in event["event"]
            for event in read_events(worker.log)
        ),
        what="Celery's line about the failed run",
    )


@pytest.mark.tier("processes")
def test_log_level_debug_shows_all_runs_of_periodic_tasks(
    start_tending: Callable[..., Running],
) -> None:
    worker = start_tending(PRESSROOM_LOG_LEVEL="debug")
    eventually(
        lambda: len(find_task_lines(worker.log, TEND.name)) >= 2, what="both lines of a fast run"
    )
