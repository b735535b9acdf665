"""Jobs and the streams of their events."""

from core.refusals.refusal import conflict, damaged, not_found, rate_limited, unavailable

JOB_NOT_FOUND = not_found("job.not_found", "There is no such job.")
JOB_NOT_FOUND_BY_ID = not_found("job.not_found", "There is no job {job_id}.", job_id=4711)
JOB_NOT_RETRYABLE = conflict(
    "job.not_retryable",
    "A {kind} job that is {status} can't be started again.",
    kind="members.import",
    status="succeeded",
)
JOBS_TOO_MANY_STREAMS = rate_limited(
    "jobs.too_many_streams", "At most {most} event streams a user.", retry_after=5, most=10
)
UPKEEP_NOT_FOUND = not_found(
    "upkeep.not_found",
    "There is no upkeep {name}; there are: {names}.",
    name="maintenance.tidy",
    names="maintenance.purge, topups.poll",
)
UPKEEP_RUNNING = conflict(
    "upkeep.running",
    "The upkeep {name} runs already; try again when it has ended.",
    name="maintenance.purge",
)
JOB_CANCELLED = conflict("job.cancelled", "The job was cancelled.")
JOB_TOO_SLOW = damaged("job.too_slow", "The job took too long.")
JOB_BROKE = damaged("job.internal_error", "The job failed unexpectedly.")
JOB_GIVEN_UP = unavailable(
    "job.given_up",
    "{reason} The job was tried for {hours} hours.",
    reason="The object storage does not answer (ReadTimeoutError).",
    hours=24,
)
JOB_WORKER_LOST = damaged(
    "job.worker_lost", "The worker was lost {crashes} times while it did this job.", crashes=3
)
