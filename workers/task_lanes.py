"""The lane of each task, and whether it recurs; as JSON on stdout, for ``lanes_of_tasks``.

A process of its own prints it: it needs all services, for which Flower has no other use.
"""

import json
import subprocess
import sys
from functools import cache
from typing import NamedTuple


class TaskLane(NamedTuple):
    lane: str
    is_periodic: bool


@cache
def lanes_of_tasks() -> dict[str, TaskLane]:
    argv = [sys.executable, "-P", "-m", __name__]
    printed = subprocess.run(argv, check=True, capture_output=True, timeout=60)  # noqa: S603
    return {task: TaskLane(*found) for task, found in json.loads(printed.stdout).items()}


def main() -> None:
    import workers.task_table  # noqa: F401 - it registers all kinds
    from services.jobs import kinds, maintenance
    from workers import sweeper

    found = {kind.name: TaskLane(kind.lane, is_periodic=False) for kind in kinds.registered()}
    asked = kinds.registered_requests()
    found |= {kind.task: TaskLane(kind.lane, is_periodic=False) for kind in asked}
    found |= {kind.name: TaskLane(kind.lane, is_periodic=True) for kind in maintenance.registered()}
    # Each lane has its own.
    found[sweeper.CANARY] = TaskLane("every", is_periodic=True)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
