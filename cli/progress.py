"""Waiting for a job at the terminal."""

import time
from collections.abc import Callable
from typing import Any

from core.errors import DomainError, Kind
from models import FINISHED, Job, JobStatus
from storage.resources import Resources

_POLL_SECONDS = 0.2


def wait_for(resources: Resources, job_id: int, *, what: str, quiet: bool) -> Job:
    """Wait until the job has ended, and show its progress meanwhile unless ``quiet``."""
    if quiet:
        return _wait(resources, job_id, lambda _: None)
    # Rich takes a moment to import, and only the progress bar needs it.
    from rich import progress as rich
    from rich.console import Console

    columns = (rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn())
    shown = rich.Progress(
        rich.TextColumn(what), *columns, console=Console(stderr=True), transient=True
    )
    with shown:
        bar = shown.add_task(what, total=None)
        return _wait(
            resources,
            job_id,
            lambda job: shown.update(bar, completed=job.progress_done, total=job.progress_total),
        )


def result_of(job: Job) -> dict[str, Any]:
    """The job's result; raise the error of a job that did not succeed."""
    if job.status != JobStatus.SUCCEEDED or job.result is None:
        reason = job.error or {"code": "job.failed", "message": "The job failed."}
        raise DomainError(Kind.INVALID, reason["code"], reason["message"])
    return job.result


def _wait(resources: Resources, job_id: int, show: Callable[[Job], None]) -> Job:
    while True:
        with resources.unit_of_work() as uow:
            job = uow.session.get_one(Job, job_id)
        show(job)
        if job.status in FINISHED:
            return job
        time.sleep(_POLL_SECONDS)
