"""Answers of calls whose work a job does."""

from http import HTTPStatus

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from api.schemas.envelope import envelope
from api.schemas.jobs import JobRecord
from api.signed_files import result_with_links
from api.state import State
from api.waiting.disconnects import while_connected
from core.errors import DomainError, Kind
from models import Job, JobStatus
from storage.redis.notifications import job_topic

GOES_ON = "The wait ran out; the work goes on. Location leads to its job."

_RETRY_SECONDS = 5


async def wait_for_job(request: Request, state: State, job_id: int, seconds: float) -> Job:
    """The job once it has ended or the wait is over; raises the reason of one that failed."""
    await while_connected(request.receive, state.jobs.wait(job_topic(job_id), seconds))
    job = await run_in_threadpool(_read, state, job_id)
    if job.status in (JobStatus.FAILED, JobStatus.CANCELLED):
        raise refusal_of(job)
    return job


def refusal_of(job: Job) -> DomainError:
    """Why a job failed or was cancelled, as its caller is told."""
    assert job.error is not None
    kind = Kind(job.error["kind"]) if "kind" in job.error else _kind_before(job)
    retry_after = _RETRY_SECONDS if kind is Kind.UNAVAILABLE else None
    return DomainError(kind, job.error["code"], job.error["message"], retry_after=retry_after)


# The release before kept no kind with an error. This table and ``_kind_before`` can go after one
# release: no job whose caller still waits was ended by that one then.
_KINDS_BEFORE = {
    "payments.refused": Kind.PROVIDER_FAILED,
    "payments.unavailable": Kind.UNAVAILABLE,
    "topup.channel_unavailable": Kind.UNAVAILABLE,
    "topup.too_late": Kind.TOO_SLOW,
}


def _kind_before(job: Job) -> Kind:
    assert job.error is not None
    if job.status == JobStatus.CANCELLED:
        return Kind.CONFLICT
    if job.error["code"].startswith("job."):
        # The work broke, whatever was sent.
        return Kind.DAMAGED
    return _KINDS_BEFORE.get(job.error["code"], Kind.INVALID)


def _read(state: State, job_id: int) -> Job:
    with state.resources.unit_of_work() as uow:
        return uow.session.get_one(Job, job_id)


def job_response(state: State, job: Job) -> JSONResponse:
    """The job's record: 200 when it has ended well, 202 and where to look while it goes on."""
    record = JobRecord.of(job, result_with_links(state, job))
    status, headers = HTTPStatus.OK, {}
    if job.status != JobStatus.SUCCEEDED:
        status, headers = HTTPStatus.ACCEPTED, {"Location": f"/jobs/{job.id}"}
    return JSONResponse(envelope(record).model_dump(mode="json"), status, headers)


def count_response(job: Job, number: str, *, replayed: bool = False) -> JSONResponse:
    """A number of the job's result; while it goes on, 202 and the job's id."""
    headers = {"Idempotent-Replayed": "true"} if replayed else {}
    if job.status == JobStatus.SUCCEEDED:
        assert job.result is not None
        return JSONResponse(envelope(job.result[number]).model_dump(), headers=headers)
    headers["Location"] = f"/jobs/{job.id}"
    return JSONResponse(envelope(job.id).model_dump(), HTTPStatus.ACCEPTED, headers)
