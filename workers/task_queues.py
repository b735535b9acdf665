"""The queue of each task, and whether it recurs; as JSON on stdout, for ``queues_of_tasks``.

A process of its own prints it: it needs all services, for which Flower has no other use.
"""

import json
import subprocess
import sys
from functools import cache
from typing import NamedTuple


class TaskQueue(NamedTuple):
    queue: str
    is_periodic: bool


@cache
def queues_of_tasks() -> dict[str, TaskQueue]:
    argv = [sys.executable, "-P", "-m", __name__]
    printed = subprocess.run(argv, check=True, capture_output=True, timeout=60)  # noqa: S603
    return {task: TaskQueue(*found) for task, found in json.loads(printed.stdout).items()}


def main() -> None:
    import workers.task_table  # noqa: F401 - it registers all kinds
    from services.jobs import maintenance
    from services.jobs.kinds import list_kinds, list_request_work
    from workers import sweeper

    found = {kind.name: TaskQueue(kind.queue, is_periodic=False) for kind in list_kinds()}
    asked = list_request_work()
    found |= {kind.task: TaskQueue(kind.queue, is_periodic=False) for kind in asked}
    found |= {
        kind.name: TaskQueue(kind.queue, is_periodic=True) for kind in maintenance.list_kinds()
    }
    # Each queue has its own.
    found[sweeper.CANARY] = TaskQueue("every", is_periodic=True)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
