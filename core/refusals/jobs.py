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
JOB_CANCELLED = Refusal(Kind.CONFLICT, "job.cancelled", "The job was cancelled.")
JOB_TOO_SLOW = Refusal(Kind.DAMAGED, "job.too_slow", "The job took too long.")
JOB_BROKE = Refusal(Kind.DAMAGED, "job.internal_error", "The job failed unexpectedly.")
JOB_WORKER_LOST = Refusal(
    Kind.DAMAGED,
    "job.worker_lost",
    "The worker was lost {crashes} times while it did this job.",
    examples={"crashes": 3},
)
