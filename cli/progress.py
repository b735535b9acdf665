"""Waits for a job, and shows its progress in the terminal."""

import math
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from core.errors import DomainError, Kind
from models import FINISHED, Job, JobStatus
from storage.resources import Resources

_POLL_SECONDS = 0.2


def wait_for_job(
    resources: Resources,
    job_id: int,
    *,
    what: str,
    quiet: bool,
    max_idle_seconds: float = math.inf,
) -> Job:
    """Wait until a job has ended. Show the progress unless ``quiet`` is true.

    ``what`` is the label of the progress bar. If the job makes no progress for
    ``max_idle_seconds``, for example because no worker runs, the function returns the unfinished
    job.
    """
    progressed_at = time.monotonic()
    newest_progress = None
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=quiet) as progress:
        bar = progress.add_task(what, total=None)
        while True:
            with resources.unit_of_work() as uow:
                job = uow.session.get_one(Job, job_id)
            progress.update(bar, completed=job.progress_done, total=job.progress_total)
            if job.status in FINISHED:
                return job
            if newest_progress != (job.attempt, job.progress_done):
                newest_progress = job.attempt, job.progress_done
                progressed_at = time.monotonic()
            elif time.monotonic() - progressed_at > max_idle_seconds:
                return job
            time.sleep(_POLL_SECONDS)


def get_result(job: Job) -> dict[str, Any]:
    if job.status != JobStatus.SUCCEEDED or job.result is None:
        reason = job.error or {"code": "job.failed", "message": "The job failed."}
        raise DomainError(Kind.INVALID, reason["code"], reason["message"])
    return job.result
