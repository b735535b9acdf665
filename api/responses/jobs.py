"""Waits for jobs, and builds responses with their results.

Call ``build_job_response``, ``add_file_samples`` and ``list_readings`` in a thread, because they
may query the database.
"""

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse

from api.limits.bulkheads import RECORDS
from api.preferences import Preference
from api.responses.file_links import build_import_errors_url, sign_export_url
from api.schemas.envelope import build_envelope
from api.schemas.jobs import JobRecord
from api.state import State
from api.waiting.disconnects import run_while_connected
from core.errors import DomainError, FieldProblem
from core.errors.imports import IMPORT_ENCODING_NEEDED
from core.ids import AccountId
from core.permissions import Permission
from models import Job, JobStatus
from services.access.caller import Caller
from services.jobs.records import restore_error
from services.subscriptions import exports
from services.subscriptions.imports.columns.samples import add_samples
from services.subscriptions.imports.import_job import IMPORT_FILE, IMPORT_SUPPRESSIONS
from services.subscriptions.imports.records import IMPORT_JOBS
from storage.redis.notifications import build_job_topic

UNDO_WAIT_SECONDS = 30.0

_FILE_IMPORTS = frozenset({IMPORT_FILE.name, IMPORT_SUPPRESSIONS.name})
_IMPORTS = frozenset(kind.name for kind in IMPORT_JOBS)
_EXPORTS = frozenset(kind.name for kind in exports.ALL_EXPORT_JOBS)


async def wait_for_job(
    request: Request,
    state: State,
    job_id: int,
    seconds: float,
    *,
    account_id: AccountId | None = None,
) -> Job:
    """Raise the job's error if the job failed or was cancelled."""
    job_end = state.jobs.wait(build_job_topic(job_id), seconds, account_id=account_id)
    await run_while_connected(request.receive, job_end)
    job = await state.in_unit_of_work(lambda uow: uow.session.get_one(Job, job_id))
    if job.status in (JobStatus.FAILED, JobStatus.CANCELLED):
        raise await RECORDS.run(_read_error, state, job)
    return job


def build_job_response(state: State, job: Job) -> JSONResponse:
    record = JobRecord.of(job, add_file_samples(state, job, add_links(state, job)))
    content = build_envelope(record).model_dump(mode="json")
    if job.status == JobStatus.SUCCEEDED:
        return JSONResponse(content)
    return JSONResponse(content, HTTPStatus.ACCEPTED, {"Location": f"/jobs/{job.id}"})


def build_count_response(job: Job, name: str, *, replayed: bool = False) -> JSONResponse:
    """Return a number from the job's result, or the job id if the job is unfinished."""
    headers = {"Idempotent-Replayed": "true"} if replayed else {}
    if job.status == JobStatus.SUCCEEDED:
        assert job.result is not None
        return JSONResponse(build_envelope(job.result[name]).model_dump(), headers=headers)
    headers["Location"] = f"/jobs/{job.id}"
    return JSONResponse(build_envelope(job.id).model_dump(), HTTPStatus.ACCEPTED, headers)


async def respond_to_undo(
    request: Request,
    state: State,
    preference: Preference,
    begin: Callable[..., int | None],
) -> JSONResponse:
    """``begin`` starts the undo and returns the job id, or ``None`` if nothing can be undone."""
    job_id = await state.in_unit_of_work(begin)
    if job_id is None:
        return JSONResponse(build_envelope(0).model_dump())
    job = await wait_for_job(request, state, job_id, preference.seconds(UNDO_WAIT_SECONDS))
    return build_count_response(job, "undone")


def add_links(
    state: State, job: Job, caller: Caller | None = None, *, has_recent_login: bool = True
) -> dict[str, Any] | None:
    """Add new signed URLs for the files that the job has written.

    Without a recent login, no URL works, because the files contain e-mail addresses. The URLs are
    ``None`` if the role of ``caller`` doesn't grant their permissions.
    """
    result = job.result
    if result is None:
        return None
    if job.kind in _IMPORTS:
        import_id = result["import_id"]
        url = build_import_errors_url(state, import_id, has_recent_login=has_recent_login)
        may_read = caller is None or caller.may(Permission.MEMBERS)
        return {**result, "errors_url": url if may_read else None}
    if job.kind in _EXPORTS:
        url = sign_export_url(state, result["export_id"], result["format"])
        may_download = has_recent_login and (caller is None or caller.may(Permission.EXPORT))
        return {**result, "url": url if may_download else None}
    return result


def add_file_samples(
    state: State, job: Job, result: dict[str, Any] | None
) -> dict[str, Any] | None:
    if result is None or job.kind not in _FILE_IMPORTS:
        return result
    return add_samples(state.resources, result)


def list_readings(state: State, job: Job) -> list[dict[str, str]]:
    """Return sample rows of an imported file in each possible encoding.

    Each item has the format of a validation error for the query parameter ``encoding``. The result
    is empty unless the import failed because of an uncertain encoding.
    """
    code = IMPORT_ENCODING_NEEDED.code
    if job.error is None or job.error["code"] != code:
        return []
    samples = add_samples(state.resources, {"import_id": job.subject_id})
    return [
        {
            "field": "query.encoding",
            "code": code,
            "message": f"{reading['encoding']}: {' | '.join(reading['rows'])}",
        }
        for reading in samples.get("readings", ())
    ]


def _read_error(state: State, job: Job) -> DomainError:
    error = restore_error(job)
    problems = [FieldProblem(**reading) for reading in list_readings(state, job)]
    return replace(error, problems=tuple(problems)) if problems else error
