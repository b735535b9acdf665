"""The commands of ``pressroom jobs``, for the durable jobs that workers run."""

from typing import Annotated, Any

import typer

from cli.connection import open_command_resources
from cli.output import (
    Json,
    Limit,
    create_group,
    format_duration,
    print_record,
    print_records,
    select_fields,
)
from models import Job, JobStatus
from services.jobs import records
from services.paging import PageRequest

NOT_SUCCEEDED = 1
app = create_group("Manage background jobs.")
JobId = Annotated[int, typer.Argument(metavar="ID")]


@app.command("list")
def list_jobs(
    status: Annotated[
        JobStatus | None, typer.Option(help="Show only jobs with this status.")
    ] = None,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """Show the jobs of all users, newest first."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        page = records.list_all_jobs(uow, PageRequest(limit), status=status)
        describe = _summary if as_json else _row
        print_records([describe(job) for job in page.rows], as_json=as_json)


@app.command("show")
def show_job(job_id: JobId, as_json: Json = False) -> None:
    """Show a job with its result or error."""
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        job = records.get_any_job(uow, job_id)
        details = select_fields(job, "user_id subject_id crashes retries request_id result")
        failing = select_fields(job, "failing_since last_reason")
        state = {"next_try_at": records.get_retry_time(job), "error": records.describe_error(job)}
        print_record(_summary(job) | details | failing | state, as_json=as_json)


@app.command("retry")
def retry_job(job_id: JobId, as_json: Json = False) -> None:
    """Retry a failed or cancelled job. Some kinds of jobs can't be retried."""
    register_kinds()
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        job = records.get_any_job(uow, job_id, lock=True)
        records.retry_locked_job(uow, job)
        uow.session.refresh(job)
        print_record(_summary(job), as_json=as_json)


@app.command("cancel")
def cancel_job(job_id: JobId, as_json: Json = False) -> None:
    """Cancel a job. A queued job ends immediately, a running job at its next step.

    In the output, ``cancelled`` is 0 if the job had already ended.
    """
    register_kinds()
    with open_command_resources() as resources, resources.unit_of_work() as uow:
        cancelled = records.cancel_locked_job(uow, records.get_any_job(uow, job_id, lock=True))
    print_record({"id": job_id, "cancelled": cancelled}, as_json=as_json)


@app.command("watch")
def watch_job(job_id: JobId, as_json: Json = False) -> None:
    """Wait until a job ends, and show it. The exit code is 1 if the job didn't succeed.

    If you stop this command, the job continues.
    """
    from cli.progress import wait_for_job

    with open_command_resources() as resources:
        with resources.unit_of_work() as uow:
            kind = records.get_any_job(uow, job_id).kind
        job = wait_for_job(resources, job_id, what=f"{kind} {job_id}", quiet=as_json)
    outcome = {**select_fields(job, "result"), "error": records.describe_error(job)}
    print_record(_summary(job) | outcome, as_json=as_json)
    if job.status != JobStatus.SUCCEEDED:
        raise typer.Exit(NOT_SUCCEEDED)


def register_kinds() -> None:
    """Register all kinds of jobs, so that the command can cancel and retry jobs of every kind."""
    import workers.task_table  # noqa: F401


def _summary(job: Job) -> dict[str, Any]:
    progress = {"progress": f"{job.progress_done}/{job.progress_total or '?'}"}
    state = select_fields(job, "id kind status attempt")
    return state | progress | select_fields(job, "created_at started_at finished_at")


def _row(job: Job) -> dict[str, Any]:
    seconds = None
    if job.started_at and job.finished_at:
        seconds = (job.finished_at - job.started_at).total_seconds()
    return {
        **select_fields(job, "id kind status attempt"),
        "progress": f"{job.progress_done}/{job.progress_total}" if job.progress_total else "",
        **select_fields(job, "created_at"),
        "took": "" if seconds is None else format_duration(seconds),
    }
