"""Responses about jobs: the request waits for a job, and the response tells its outcome."""

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse

from api.limits.bulkheads import RECORDS
from api.preferences import Preference
from api.responses.file_links import export_url, import_errors_url
from api.schemas.envelope import envelope
from api.schemas.jobs import JobRecord
from api.state import State
from api.waiting.disconnects import run_while_connected
from core.errors import DomainError, FieldProblem
from core.errors.imports import IMPORT_ENCODING_NEEDED
from models import Job, JobStatus
from services.jobs.records import restore_error
from services.subscriptions import exports
from services.subscriptions.imports.import_job import ADD_MEMBERS, IMPORT_FILE, IMPORT_SUPPRESSIONS
from services.subscriptions.imports.samples import add_samples
from storage.redis.notifications import job_topic

UNDO_WAIT_SECONDS = 30.0


async def wait_for_job(
    request: Request, state: State, job_id: int, seconds: float, *, owner_id: int = 0
) -> Job:
    """Return the job once it has ended or the wait is over; raises the error of one that failed."""
    ended = state.jobs.wait(job_topic(job_id), seconds, owner_id=owner_id)
    await run_while_connected(request.receive, ended)
    job = await state.in_unit_of_work(lambda uow: uow.session.get_one(Job, job_id))
    if job.status in (JobStatus.FAILED, JobStatus.CANCELLED):
        raise await RECORDS.run(_error_with_readings, state, job)
    return job


def job_response(state: State, job: Job) -> JSONResponse:
    """Answer the job's record: 200 when it has succeeded, 202 and its ``Location`` before that.

    For an import it reads samples of the file: call it in a thread.
    """
    result = result_with_samples(state, job, result_with_links(state, job))
    record = JobRecord.of(job, result)
    status, headers = HTTPStatus.OK, {}
    if job.status != JobStatus.SUCCEEDED:
        status, headers = HTTPStatus.ACCEPTED, {"Location": f"/jobs/{job.id}"}
    return JSONResponse(envelope(record).model_dump(mode="json"), status, headers)


def count_response(job: Job, number: str, *, replayed: bool = False) -> JSONResponse:
    """Answer a number from the job's result; while the job goes on, 202 with its id."""
    headers = {"Idempotent-Replayed": "true"} if replayed else {}
    if job.status == JobStatus.SUCCEEDED:
        assert job.result is not None
        return JSONResponse(envelope(job.result[number]).model_dump(), headers=headers)
    headers["Location"] = f"/jobs/{job.id}"
    return JSONResponse(envelope(job.id).model_dump(), HTTPStatus.ACCEPTED, headers)


async def undo_response(
    request: Request,
    state: State,
    preference: Preference,
    begin: Callable[..., int | None],
) -> JSONResponse:
    """Answer how many an undo took back; ``begin`` returns its job, or ``None`` for no work."""
    job_id = await state.in_unit_of_work(begin)
    if job_id is None:
        return JSONResponse(envelope(0).model_dump())
    job = await wait_for_job(request, state, job_id, preference.seconds(UNDO_WAIT_SECONDS))
    return count_response(job, "undone")


def result_with_links(
    state: State, job: Job, *, has_recent_login: bool = True
) -> dict[str, Any] | None:
    """Return a job's result, with newly signed URLs of the files that the job wrote.

    These files contain e-mail addresses. A caller without a recent login gets no working URL.
    """
    result = job.result
    if result is None:
        return None
    if job.kind in {ADD_MEMBERS.name, IMPORT_FILE.name, IMPORT_SUPPRESSIONS.name}:
        import_id = result["import_id"]
        url = import_errors_url(state, import_id, has_recent_login=has_recent_login)
        return {**result, "errors_url": url}
    if job.kind in {kind.name for kind in exports.EXPORT_JOBS.values()}:
        url = export_url(state, result["export_id"], result["format"])
        return {**result, "url": url if has_recent_login else None}
    return result


def result_with_samples(
    state: State, job: Job, result: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Add what an import's owner is shown of the file; it reads, so call it in a thread."""
    if result is None or job.kind not in {IMPORT_FILE.name, IMPORT_SUPPRESSIONS.name}:
        return result
    return add_samples(state.resources, result)


def _error_with_readings(state: State, job: Job) -> DomainError:
    """Return the error of a failed job, with sample rows if a file's encoding is uncertain."""
    error = restore_error(job)
    problems = [FieldProblem(**each) for each in readings_of(state, job)]
    return replace(error, problems=tuple(problems)) if problems else error


def readings_of(state: State, job: Job) -> list[dict[str, str]]:
    """Return sample rows of an imported file, decoded with each possible encoding.

    Each entry is an error about the query parameter ``encoding``. The list is empty unless the job
    failed because the encoding is uncertain. Call this function in a thread, because it queries the
    database.
    """
    code = IMPORT_ENCODING_NEEDED.code
    if job.error is None or job.error["code"] != code:
        return []
    found = add_samples(state.resources, {"import_id": job.subject_id})
    return [
        {
            "field": "query.encoding",
            "code": code,
            "message": f"{each['encoding']}: {' | '.join(each['rows'])}",
        }
        for each in found.get("readings", ())
    ]
