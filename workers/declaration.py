"""Declaring tasks: one typed door, since Celery silently accepts a misspelt option."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from celery import Celery

from services.jobs.kinds import JobKind
from workers.context import ProcessContext, WorkerContext
from workers.job_runner import JobWork, run_job
from workers.request_tasks import RequestHandler, answer_request

PeriodicWork = Callable[[WorkerContext], object]


@dataclass(frozen=True)
class TaskTable:
    """Which function does which work.

    Attributes:
        jobs: durable work, called with the lease of a claimed job.
        requests: request-only work by the task's name, from the caller's payload to its result.
        periodic: what beat sends, by the task's name: harmless when it runs twice, or not at all
            for a while.
    """

    jobs: Mapping[JobKind, JobWork] = field(default_factory=dict)
    requests: Mapping[str, RequestHandler] = field(default_factory=dict)
    periodic: Mapping[str, PeriodicWork] = field(default_factory=dict)

    def bind(self, app: Celery, process: ProcessContext) -> None:
        """Register the tasks with an application, which runs them in this process's context."""
        for kind, work in self.jobs.items():
            app.task(_job_task(process, work), name=kind.name)
        for name, answer in self.requests.items():
            app.task(_request_task(process, answer), name=name)
        for name, tend in self.periodic.items():
            app.task(_periodic_task(process, tend), name=name)


def _job_task(process: ProcessContext, work: JobWork) -> Callable[..., None]:
    def task(*, job_id: int) -> None:
        run_job(process.get(), job_id, work)

    return task


def _request_task(process: ProcessContext, answer: RequestHandler) -> Callable[..., None]:
    def task(*, request_id: str) -> None:
        answer_request(process.get(), request_id, answer)

    return task


def _periodic_task(process: ProcessContext, tend: PeriodicWork) -> Callable[..., None]:
    def task() -> None:
        tend(process.get())

    return task
