"""Jobs and the streams of their events."""

from core.errors import Kind
from core.refusals.refusal import Refusal

JOB_NOT_FOUND = Refusal(Kind.NOT_FOUND, "job.not_found", "There is no such job.")
JOB_NOT_FOUND_BY_ID = Refusal(
    Kind.NOT_FOUND, "job.not_found", "There is no job {job_id}.", examples={"job_id": 4711}
)
JOB_NOT_RETRYABLE = Refusal(
    Kind.CONFLICT,
    "job.not_retryable",
    "A {kind} job that is {status} can't be started again.",
    examples={"kind": "members.import", "status": "succeeded"},
)
JOBS_TOO_MANY_STREAMS = Refusal(
    Kind.RATE_LIMITED,
    "jobs.too_many_streams",
    "At most {most} event streams a user.",
    retry_after=5,
    examples={"most": 10},
)
