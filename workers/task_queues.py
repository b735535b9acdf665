"""Prints the queue of each task as JSON, so that Flower needn't import all services."""

import json
import subprocess
import sys
from functools import cache
from typing import NamedTuple


class TaskQueue(NamedTuple):
    queue: str
    is_periodic: bool


@cache
def list_task_queues() -> dict[str, TaskQueue]:
    argv = [sys.executable, "-P", "-m", __name__]
    process = subprocess.run(argv, check=True, capture_output=True, timeout=60)  # noqa: S603
    return {task: TaskQueue(*values) for task, values in json.loads(process.stdout).items()}


def main() -> None:
    import workers.task_table  # noqa: F401 - the import registers all kinds of work
    from services.jobs import maintenance
    from services.jobs.kinds import list_kinds, list_request_work
    from workers.canary_task import CANARY

    task_queues = {kind.name: TaskQueue(kind.queue, is_periodic=False) for kind in list_kinds()}
    for request_kind in list_request_work():
        task_queues[request_kind.task] = TaskQueue(request_kind.queue, is_periodic=False)
    for kind in maintenance.list_kinds():
        task_queues[kind.name] = TaskQueue(kind.queue, is_periodic=True)
    # The canary task belongs to no single queue, because it runs in every queue.
    task_queues[CANARY] = TaskQueue("every", is_periodic=True)
    sys.stdout.write(json.dumps(task_queues))


if __name__ == "__main__":
    main()
