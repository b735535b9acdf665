from typing import Annotated, Any

import typer

from cli.connection import connected
from cli.output import Json, Limit, fields, group, show, show_all
from models import Job, JobStatus
from services.jobs import records
from services.paging import PageRequest

NOT_SUCCEEDED = 1

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
        jobs = records.list_all(uow, PageRequest(limit), status=status)
        show_all([_brief(job) for job in jobs.rows], as_json=as_json)


@app.command("show")
def show_job(job_id: JobId, as_json: Json = False) -> None:
    """Show one job, with its result or error."""
    with connected() as resources, resources.unit_of_work() as uow:
        job = records.get_any(uow, job_id)
        details = fields(job, "user_id subject_id crashes retries request_id result")
        failing = fields(job, "failing_since last_reason")
        state = {"next_try_at": records.next_try_at(job), "error": records.error_shown(job)}
        show(_brief(job) | details | failing | state, as_json=as_json)


@app.command("retry")
def retry_job(job_id: JobId, as_json: Json = False) -> None:
    """Start a failed or cancelled job again, if its kind allows that."""
    _know_kinds()
    with connected() as resources, resources.unit_of_work() as uow:
        job = records.get_any(uow, job_id, lock=True)
        records.restart(uow, job)
        uow.session.refresh(job)
        show(_brief(job), as_json=as_json)


@app.command("cancel")
def cancel_job(job_id: JobId, as_json: Json = False) -> None:
    """Cancel a job: a queued one ends at once, a running one at its next step. 0: it had ended."""
    _know_kinds()
    with connected() as resources, resources.unit_of_work() as uow:
        cancelled = records.stop(uow, records.get_any(uow, job_id, lock=True))
    show({"id": job_id, "cancelled": cancelled}, as_json=as_json)


@app.command("watch")
def watch_job(job_id: JobId, as_json: Json = False) -> None:
    """Wait until a job has ended, and show it. The exit code is 1 if it did not succeed.

    The job goes on if you stop this command.
    """
    from cli.progress import wait_for

    with connected() as resources:
        with resources.unit_of_work() as uow:
            kind = records.get_any(uow, job_id).kind
        job = wait_for(resources, job_id, what=f"{kind} {job_id}", quiet=as_json)
    outcome = {**fields(job, "result"), "error": records.error_shown(job)}
    show(_brief(job) | outcome, as_json=as_json)
    if job.status != JobStatus.SUCCEEDED:
        raise typer.Exit(NOT_SUCCEEDED)


def _know_kinds() -> None:
    """Register all kinds of jobs: with some jobs their subjects end or begin again."""
    import workers.tasks.table  # noqa: F401


def _brief(job: Job) -> dict[str, Any]:
    return {
        **fields(job, "id kind status attempt"),
        "progress": f"{job.progress_done}/{job.progress_total or '?'}",
        **fields(job, "created_at started_at finished_at"),
    }
