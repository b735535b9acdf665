"""The declaration of tasks in typed tables, since Celery silently accepts a misspelt option."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from celery import Celery

from core.lanes import RequestKind
from services.jobs.kinds import JobKind
from services.jobs.upkeep import UpkeepKind
from workers.context import ProcessContext
from workers.running.attempts import KILL_AFTER_SECONDS, JobWork
from workers.running.job_runner import run_job
from workers.running.request_tasks import RequestHandler, answer_request
from workers.running.upkeep_runner import PeriodicWork, run_upkeep


@dataclass(frozen=True)
class TaskTable:
    """Which function does which work.

    Attributes:
        jobs: durable work, called with the lease of a claimed job.
        requests: request-only work, from the caller's payload to its result.
        upkeep: periodic work.
    """

    jobs: Mapping[JobKind, JobWork] = field(default_factory=dict)
    requests: Mapping[RequestKind, RequestHandler] = field(default_factory=dict)
    upkeep: Mapping[UpkeepKind, PeriodicWork] = field(default_factory=dict)

    def bind(self, app: Celery, process: ProcessContext) -> None:
        """Register the tasks with an application, which runs them in this process's context."""
        run_one = _task(process, partial(run_job, works=self.jobs))
        for kind in self.jobs:
            # A pool of processes raises in the work at the deadline, and kills what does not end.
            # A pool of threads can do neither.
            most = kind.deadline_seconds + kind.max_stay_seconds
            limits = {"soft_time_limit": most, "time_limit": most + KILL_AFTER_SECONDS}
            app.task(run_one, name=kind.name, **limits)
        for asked, answer in self.requests.items():
            task = _task(process, partial(answer_request, kind=asked, answer=answer))
            # Events double what a worker sends for so short a task, and name no job.
            app.task(task, name=asked.task, send_events=False)
        for periodic, tend in self.upkeep.items():
            run = partial(run_upkeep, kind=periodic, work=tend)
            app.task(_task(process, run), name=periodic.name)


def _task(process: ProcessContext, run: Callable[..., object]) -> Callable[..., None]:
    def task(**arguments: Any) -> None:
        run(process.get(), **arguments)

    return task
