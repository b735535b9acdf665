"""Answers of routes whose work a job does."""

from http import HTTPStatus

from fastapi import Request
from fastapi.responses import JSONResponse

from api.schemas.envelope import envelope
from api.schemas.jobs import JobRecord
from api.signed_files import result_with_links, result_with_samples
from api.state import State
from api.waiting.disconnects import while_connected
from core.errors import DomainError, Kind
from models import Job, JobStatus
from storage.redis.notifications import job_topic

GOES_ON = "The wait ran out; the work goes on. Location leads to its job."

_RETRY_SECONDS = 5


async def wait_for_job(
    request: Request, state: State, job_id: int, seconds: float, *, owner_id: int = 0
) -> Job:
    """The job, once it has ended or the wait is over; raises the error of a job that failed."""
    ended = state.jobs.wait(job_topic(job_id), seconds, owner_id=owner_id)
    await while_connected(request.receive, ended)
    job = await state.in_unit_of_work(lambda uow: uow.session.get_one(Job, job_id))
    if job.status in (JobStatus.FAILED, JobStatus.CANCELLED):
        raise refusal_of(job)
    return job


def refusal_of(job: Job) -> DomainError:
    """The error of a job that failed or was cancelled, as its caller gets it."""
    assert job.error is not None
    kind = Kind(job.error["kind"])
    retry_after = _RETRY_SECONDS if kind is Kind.UNAVAILABLE else None
    return DomainError(
        kind,
        job.error["code"],
        job.error["message"],
        retry_after=retry_after,
        facts=job.error.get("facts", {}),
    )


def job_response(state: State, job: Job) -> JSONResponse:
    """The job's record: 200 when it has succeeded; 202 with its ``Location`` while it goes on.

    Of an import it reads what its owner is shown of the file: call it in a thread.
    """
    result = result_with_samples(state, job, result_with_links(state, job))
    record = JobRecord.of(job, result)
    status, headers = HTTPStatus.OK, {}
    if job.status != JobStatus.SUCCEEDED:
        status, headers = HTTPStatus.ACCEPTED, {"Location": f"/jobs/{job.id}"}
    return JSONResponse(envelope(record).model_dump(mode="json"), status, headers)


def count_response(job: Job, number: str, *, replayed: bool = False) -> JSONResponse:
    """A number from the job's result; while the job goes on, 202 with its id."""
    headers = {"Idempotent-Replayed": "true"} if replayed else {}
    if job.status == JobStatus.SUCCEEDED:
        assert job.result is not None
        return JSONResponse(envelope(job.result[number]).model_dump(), headers=headers)
    headers["Location"] = f"/jobs/{job.id}"
    return JSONResponse(envelope(job.id).model_dump(), HTTPStatus.ACCEPTED, headers)
