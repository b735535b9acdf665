"""The declaration of tasks in typed tables, since Celery silently accepts a misspelt option."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from celery import Celery

from services.jobs.kinds import JobKind
from workers.context import ProcessContext, WorkerContext
from workers.job_runner import JobWork, run_job
from workers.request_tasks import RequestHandler, answer_request

PeriodicWork = Callable[[WorkerContext], object]

KILL_AFTER_SECONDS = 15.0


@dataclass(frozen=True)
class TaskTable:
    """Which function does which work.

    Attributes:
        jobs: durable work, called with the lease of a claimed job.
        requests: request-only work by the task's name, from the caller's payload to its result.
        periodic: work that beat sends, by the task's name. It is harmless when it runs twice, or
            does not run for a while.
    """

    jobs: Mapping[JobKind, JobWork] = field(default_factory=dict)
    requests: Mapping[str, RequestHandler] = field(default_factory=dict)
    periodic: Mapping[str, PeriodicWork] = field(default_factory=dict)

    def bind(self, app: Celery, process: ProcessContext) -> None:
        """Register the tasks with an application, which runs them in this process's context."""
        for kind, work in self.jobs.items():
            # A pool of processes raises in the work at the deadline, and kills what does not end.
            # A pool of threads can do neither.
            limits = {
                "soft_time_limit": kind.deadline_seconds,
                "time_limit": kind.deadline_seconds + KILL_AFTER_SECONDS,
            }
            app.task(_task(process, partial(run_job, work=work)), name=kind.name, **limits)
        for name, answer in self.requests.items():
            app.task(_task(process, partial(answer_request, task=name, answer=answer)), name=name)
        for name, tend in self.periodic.items():
            app.task(_task(process, tend), name=name)


def _task(process: ProcessContext, run: Callable[..., object]) -> Callable[..., None]:
    def task(**arguments: Any) -> None:
        run(process.get(), **arguments)

    return task
