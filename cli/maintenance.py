from datetime import datetime
from functools import partial
from typing import Annotated, Any

import typer
from sqlalchemy import func, select

from cli.connection import connected
from cli.output import Json, Limit, fields, group, show, show_all
from core import clock
from models import Job, JobStatus, Maintenance
from services.accounts.factors import totp
from services.attachments import key_rotation, strays
from services.jobs import maintenance, records
from services.paging import PageRequest

NOT_SUCCEEDED = 1

jobs = group("Durable jobs, which the workers do.")

JobId = Annotated[int, typer.Argument(metavar="ID")]


@jobs.command("list")
def list_jobs(
    status: Annotated[
        JobStatus | None, typer.Option(help="Show only jobs with this status.")
    ] = None,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """Show jobs of all users, newest first."""
    with connected() as resources, resources.unit_of_work() as uow:
        found = records.list_all_jobs(uow, PageRequest(limit), status=status)
        shown = _brief if as_json else _row
        show_all([shown(job) for job in found.rows], as_json=as_json)


@jobs.command("show")
def show_job(job_id: JobId, as_json: Json = False) -> None:
    """Show one job, with its result or error."""
    with connected() as resources, resources.unit_of_work() as uow:
        job = records.get_any_job(uow, job_id)
        details = fields(job, "user_id subject_id crashes retries request_id result")
        failing = fields(job, "failing_since last_reason")
        state = {"next_try_at": records.get_retry_time(job), "error": records.describe_error(job)}
        show(_brief(job) | details | failing | state, as_json=as_json)


@jobs.command("retry")
def retry_job(job_id: JobId, as_json: Json = False) -> None:
    """Start a failed or cancelled job again, if its kind allows that."""
    _know_kinds()
    with connected() as resources, resources.unit_of_work() as uow:
        job = records.get_any_job(uow, job_id, lock=True)
        records.retry_locked_job(uow, job)
        uow.session.refresh(job)
        show(_brief(job), as_json=as_json)


@jobs.command("cancel")
def cancel_job(job_id: JobId, as_json: Json = False) -> None:
    """Cancel a job. A queued one ends at once, a running one at its next step. 0: it had ended."""
    _know_kinds()
    with connected() as resources, resources.unit_of_work() as uow:
        cancelled = records.cancel_locked_job(uow, records.get_any_job(uow, job_id, lock=True))
    show({"id": job_id, "cancelled": cancelled}, as_json=as_json)


@jobs.command("watch")
def watch_job(job_id: JobId, as_json: Json = False) -> None:
    """Wait until a job has ended, and show it. The exit code is 1 if it did not succeed.

    The job goes on if you stop this command.
    """
    from cli.progress import wait_for

    with connected() as resources:
        with resources.unit_of_work() as uow:
            kind = records.get_any_job(uow, job_id).kind
        job = wait_for(resources, job_id, what=f"{kind} {job_id}", quiet=as_json)
    outcome = {**fields(job, "result"), "error": records.describe_error(job)}
    show(_brief(job) | outcome, as_json=as_json)
    if job.status != JobStatus.SUCCEEDED:
        raise typer.Exit(NOT_SUCCEEDED)


def _know_kinds() -> None:
    """Register all kinds of work: with some jobs their subjects end or begin again."""
    import workers.task_table  # noqa: F401


def _brief(job: Job) -> dict[str, Any]:
    progress = {"progress": f"{job.progress_done}/{job.progress_total or '?'}"}
    began = fields(job, "id kind status attempt")
    return began | progress | fields(job, "created_at started_at finished_at")


def _row(job: Job) -> dict[str, Any]:
    """Return what a table shows of a job: one time and how long the work took."""
    ended, began = job.finished_at, job.started_at
    return {
        **fields(job, "id kind status attempt"),
        "progress": f"{job.progress_done}/{job.progress_total}" if job.progress_total else "",
        **fields(job, "created_at"),
        "took": _duration((ended - began).total_seconds()) if ended and began else "",
    }


maintenance_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@maintenance_app.command("maintenance")
def run_or_list(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Run this maintenance now, due or not.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the deployment's periodic work, or run one kind of it."""
    with connected() as resources:
        if name is not None:
            _know_kinds()
            kind = maintenance.get_kind(name)
            ran = maintenance.run_now(resources, kind, partial(kind.run, resources))
            show(_described(ran), as_json=as_json)
            return
        with resources.unit_of_work() as uow:
            rows = maintenance.list_rows(uow)
            now = uow.session.scalar(select(func.now()))
    assert now is not None
    shown = _described if as_json else partial(_brief_maintenance, now=now)
    show_all([shown(row) for row in rows], as_json=as_json)


def _described(row: Maintenance) -> dict[str, Any]:
    from services.operators import last_seconds

    return {
        **fields(row, "name every_seconds last_started_at last_finished_at"),
        "last_seconds": last_seconds(row),
        **fields(row, "last_result last_error"),
        "is_running": row.lease_expires_at is not None,
        **fields(row, "due_at"),
    }


def _brief_maintenance(row: Maintenance, *, now: datetime) -> dict[str, Any]:
    """Return what a table of 80 columns has room for: times from now, by the database's clock."""
    from services.operators import last_seconds

    seconds = last_seconds(row)
    is_running = row.lease_expires_at is not None
    due = (row.due_at - now).total_seconds()
    started = row.last_started_at
    result = row.last_result and row.last_result["done"]
    if row.last_result and result is None:
        # A backup without a place.
        result = "off"
    return {
        "name": row.name,
        "every": _duration(row.every_seconds),
        "last run": started and f"{_duration((now - started).total_seconds())} ago",
        "took": None if seconds is None else f"{seconds:.2f} s",
        "result": row.last_error or result,
        "next": "runs" if is_running else f"in {_duration(due)}" if due > 0 else "due",
    }


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length or seconds == length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


attachments = group("Uploaded images.")
encryption = group("Encryption keys.")
# With a callback, a group stays a group while it has only one command.
attachments.callback()(lambda: None)
encryption.callback()(lambda: None)

FOUND = 1


@attachments.command("sweep")
def sweep(
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Remove objects without a row, fail rows without an object."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Find rows without objects and objects without rows. The exit code is 1 if any are left."""
    with connected() as resources:
        found = []
        for stray in strays.find_strays(resources, now=clock.now()):
            if fix:
                strays.mend_stray(resources, stray)
            found.append({"fault": stray.kind, "key": stray.key, "mended": fix})
    show_all(found, as_json=as_json)
    if found and not fix:
        raise typer.Exit(FOUND)


@encryption.command("rotate")
def rotate(as_json: Json = False) -> None:
    """Wrap the keys of files and the secrets of apps anew.

    The first of PRESSROOM_ENCRYPTION_KEYS wraps them.
    """
    with connected() as resources:
        rewrapped = sum(key_rotation.rewrap_data_keys(resources))
        with resources.unit_of_work() as uow:
            rewrapped += totp.rotate(uow, resources.key_wrapper)
        current = resources.key_wrapper.current
    show({"rewrapped": rewrapped, "key": current}, as_json=as_json)
