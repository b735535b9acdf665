# ruff: noqa: F401 - these services register their kinds of jobs
from typing import Annotated, Any

import typer

from cli.connection import connected
from cli.output import Json, Limit, fields, group, show, show_all
from core.refusals.jobs import JOB_NOT_FOUND_BY_ID
from models import Job, JobStatus
from services.jobs import records
from services.mailing import exports
from services.mailing.imports import import_jobs, undo
from services.mailing.subscriptions import subscribe
from services.media.attachments import upload
from services.money.topups import checkout
from storage.unit_of_work import UnitOfWork

app = group("Durable jobs, which the workers do.")

JobId = Annotated[int, typer.Argument(metavar="ID")]


@app.command("list")
def list_jobs(
    status: Annotated[
        JobStatus | None, typer.Option(help="Show only jobs with this status.")
    ] = None,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """Show jobs of all users, newest first."""
    with connected() as resources, resources.unit_of_work() as uow:
        jobs = records.list_all(uow, status=status, limit=limit)
        show_all([_brief(job) for job in jobs], as_json=as_json)


@app.command("show")
def show_job(job_id: JobId, as_json: Json = False) -> None:
    """Show one job, with its result or error."""
    with connected() as resources, resources.unit_of_work() as uow:
        job = _get(uow, job_id)
        details = fields(job, "user_id subject_id crashes retries request_id result")
        failing = fields(job, "failing_since last_reason")
        state = {"next_try_at": records.next_try_at(job), "error": records.error_shown(job)}
        show(_brief(job) | details | failing | state, as_json=as_json)


@app.command("retry")
def retry_job(job_id: JobId, as_json: Json = False) -> None:
    """Start a failed or cancelled job again, if its kind allows that."""
    with connected() as resources, resources.unit_of_work() as uow:
        job = _get(uow, job_id)
        records.restart(uow, job)
        uow.session.refresh(job)
        show(_brief(job), as_json=as_json)


def _get(uow: UnitOfWork, job_id: int) -> Job:
    job = uow.session.get(Job, job_id)
    if job is None:
        raise JOB_NOT_FOUND_BY_ID(job_id=job_id)
    return job


def _brief(job: Job) -> dict[str, Any]:
    return {
        **fields(job, "id kind status attempt"),
        "progress": f"{job.progress_done}/{job.progress_total or '?'}",
        **fields(job, "created_at started_at finished_at"),
    }
