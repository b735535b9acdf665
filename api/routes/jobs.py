"""The API endpoints for jobs."""

import asyncio
import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from api.auth.identification import identify_caller
from api.auth.requirements import JOB_KIND_SCOPE
from api.limits.bulkheads import RECORDS, STREAMS
from api.middleware.request_rewriting import is_head
from api.openapi.declarations import error_responses
from api.paging import Paging
from api.record_ids import PathId
from api.responses.jobs import add_file_samples, add_links, list_readings
from api.route_classes import JsonRoute
from api.schemas.envelope import Envelope, Page, build_envelope, build_page
from api.schemas.jobs import JobRecord
from api.state import State, StateOf, Transaction
from api.waiting.event_streams import EventStream
from api.waiting.subscriber import CHECK_EVERY_SECONDS, watch_jobs
from core.errors import DomainError, access, jobs, requests
from core.logging import get_logger
from core.permissions import Permission
from models import FINISHED, Job
from services.access.caller import Caller
from services.access.sessions import has_recent_login
from services.jobs import records

log = get_logger(__name__)

router = APIRouter(tags=["Jobs"], route_class=JsonRoute)

JobCaller = Annotated[Caller, JOB_KIND_SCOPE]

HEARTBEAT_SECONDS = 15.0
# The maximum time for which an event stream continues after its credential was revoked.
CREDENTIAL_CHECK_SECONDS = 15.0

_EVENT_EXAMPLE = 'id: 3\nevent: job\ndata: {"id": 6204117398252, "status": "running"}\n\n'
_NOT_FOUND = error_responses(jobs.JOB_NOT_FOUND, access.AUTH_INSUFFICIENT_SCOPE)


@router.get("/jobs", summary="List all jobs", responses=error_responses(requests.CURSOR_INVALID))
def list_jobs(
    state: StateOf, uow: Transaction, caller: JobCaller, paging: Paging
) -> Envelope[Page[JobRecord]]:
    """List your jobs, newest first. The list contains only kinds of jobs that your credential can
    access.
    """
    is_recent = has_recent_login(uow, caller)

    def convert(rows: list[Job]) -> list[JobRecord]:
        return [_build_record(state, caller, job, has_recent_login=is_recent) for job in rows]

    return build_envelope(build_page(paging, partial(records.list_jobs, uow, caller), convert))


@router.get("/jobs/{job_id}", summary="Retrieve a job", responses=_NOT_FOUND)
def read_job(state: StateOf, caller: JobCaller, job_id: PathId) -> Envelope[JobRecord]:
    """Retrieve one of your jobs and its progress.

    If the session logged in more than 15 minutes ago, the URLs of files can't be opened. The `url`
    of an export is null, and the `errors_url` of an import lacks its signature.
    Both are null, and sample rows are omitted, for roles that may not see them.
    """
    return build_envelope(_read_job(state, caller, job_id)[1])


@router.delete("/jobs/{job_id}", summary="Cancel a job", responses=_NOT_FOUND)
def cancel_job(uow: Transaction, caller: JobCaller, job_id: PathId) -> Envelope[int]:
    """Cancel a job. A queued job is cancelled immediately, and a running job at its next step.

    Returns 1, or 0 if the job has already ended.
    """
    return build_envelope(records.cancel_own_job(uow, caller, job_id))


@router.post(
    "/jobs/{job_id}/retry",
    summary="Retry a job",
    responses={
        **_NOT_FOUND,
        **error_responses(jobs.JOB_NOT_RETRYABLE, access.AUTH_LOGIN_AGAIN, access.QUOTA_EXCEEDED),
    },
)
def retry_job(uow: Transaction, caller: JobCaller, job_id: PathId) -> Envelope[int]:
    """Retry a failed or cancelled job. Some kinds of jobs can't be retried."""
    return build_envelope(records.retry_own_job(uow, caller, job_id))


@router.get(
    "/jobs/{job_id}/events",
    summary="Stream the state of a job",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": (
                "Server-sent events with the current state of the job. The id of each "
                "event is the version of the job."
            ),
            "content": {
                "text/event-stream": {
                    # The schema of the event stream is empty, because OpenAPI 3.1 doesn't say
                    # whether a schema describes the whole stream or one event.
                    "schema": {},
                    "example": _EVENT_EXAMPLE,
                }
            },
        },
        **_NOT_FOUND,
        **error_responses(jobs.JOBS_TOO_MANY_STREAMS),
    },
)
async def stream_job_events(
    request: Request, state: StateOf, caller: JobCaller, job_id: PathId
) -> StreamingResponse:
    """Stream the state of a job at each change until the job ends. A comment every 15 seconds keeps
    the stream open.

    The stream also ends when its credential is revoked or expires.
    """
    job_and_record = await RECORDS.run(_read_job, state, caller, job_id)
    last_event_id = request.headers.get("last-event-id", "")
    last_seen = int(last_event_id) if re.fullmatch(r"[0-9]{1,18}", last_event_id) else None
    # A HEAD request gets an empty stream, because its connection would stay open without events.
    events: AsyncIterator[str] | tuple[str, ...] = ()
    if not is_head(request.scope):
        events = _stream_events(request, state, caller, job_and_record, last_seen)
    return EventStream(state.streams, caller.account_id, events)


async def _stream_events(
    request: Request,
    state: State,
    caller: Caller,
    job_and_record: tuple[Job, JobRecord],
    last_seen: int | None,
) -> AsyncIterator[str]:
    job, record = job_and_record
    silent_seconds = 0.0
    now = asyncio.get_running_loop().time
    checked_at = now()
    with watch_jobs(state.subscriber, [job.id]) as wait_for_change:
        while True:
            if job.version != last_seen:
                yield f"id: {job.version}\nevent: job\ndata: {record.model_dump_json()}\n\n"
                last_seen = job.version
                silent_seconds = 0.0
            if job.status in FINISHED or state.streams.closing.is_set():
                return
            await wait_for_change()
            # Count the whole interval even if the wait was shorter, because an early heartbeat does
            # no harm.
            silent_seconds += CHECK_EVERY_SECONDS
            if silent_seconds >= HEARTBEAT_SECONDS:
                yield ": still here\n\n"
                silent_seconds = 0.0
            is_unchecked = now() - checked_at >= CREDENTIAL_CHECK_SECONDS
            try:
                if is_unchecked:
                    caller = await STREAMS.run(_identify_again, request, caller)
                    checked_at = now()
                job, record = await STREAMS.run(_read_job, state, caller, job.id)
            except DomainError as error:
                # End the stream without an error response, because the HTTP status was already
                # sent. A client that reconnects to the event stream gets the error.
                log.info("stream.ended", job_id=job.id, code=error.code)
                return


def _identify_again(request: Request, caller: Caller) -> Caller:
    """Identify the caller of an open stream again.

    Raises an error if the caller's credential was revoked.
    """
    identified = identify_caller(request)
    if identified is None or identified.account_id != caller.account_id:
        raise access.AUTH_CREDENTIALS_MISSING()
    return identified


def _build_record(state: State, caller: Caller, job: Job, *, has_recent_login: bool) -> JobRecord:
    return JobRecord.of(job, add_links(state, job, caller, has_recent_login=has_recent_login))


def _read_job(state: State, caller: Caller, job_id: int) -> tuple[Job, JobRecord]:
    with state.resources.unit_of_work() as uow:
        job = records.get_job(uow, caller, job_id)
        is_recent = has_recent_login(uow, caller)
    record = _build_record(state, caller, job, has_recent_login=is_recent)
    if not caller.may(Permission.MEMBERS):
        return job, record
    record.result = add_file_samples(state, job, record.result)
    if record.error is not None and (readings := list_readings(state, job)):
        record.error["errors"] = readings
    return job, record
