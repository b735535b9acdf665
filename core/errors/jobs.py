"""Errors about jobs, event streams of jobs, maintenance and backups."""

from core.errors.catalogue import conflict, damaged, not_found, rate_limited, unavailable

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
MAINTENANCE_NOT_FOUND = not_found(
    "maintenance.not_found",
    "There is no maintenance {name}; there are: {names}.",
    name="maintenance.tidy",
    names="maintenance.purge, topups.poll",
)
MAINTENANCE_RUNNING = conflict(
    "maintenance.running",
    "The maintenance {name} runs already; try again when it has ended.",
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
JOB_ROWS_FAILED = damaged(
    "job.rows_failed",
    "The rows from line {first} to line {last} could not be written, through a fault of ours. All "
    "other rows were.",
    first=10_002,
    last=20_001,
)
JOB_OPT_OUTS_FAILED = damaged(
    "job.rows_failed",
    "The opt-outs in lines {first} to {last} could not be imported because of an internal "
    "error. Therefore no member was added.",
    first=10_002,
    last=20_001,
)

BACKUP_NOT_FOUND = not_found(
    "backup.not_found", "There is no whole backup {which}.", which="20260314T030000.000000Z-7f3k"
)
BACKUP_DAMAGED = damaged(
    "backup.damaged",
    "The backup can't be used: {name}: {reason}.",
    name="backups/20260314T030000.000000Z-7f3k/database/000004",
    reason="it is missing",
)
BACKUP_KEY_MISSING = conflict(
    "backup.key_missing",
    "The backup needs the key {key}, put it into {setting}.",
    key="k1",
    setting="PRESSROOM_SECRET_KEYS",
)
BACKUP_KEY_DIFFERS = conflict(
    "backup.key_differs",
    "The key {key} in {setting} is another one than when the backup was made.",
    key="k1",
    setting="PRESSROOM_SECRET_KEYS",
)
BACKUP_TOO_NEW = conflict(
    "backup.too_new",
    "The backup is of release {release}, whose tables ({revision}) are newer than this release's.",
    release="2.1.0",
    revision="0031",
)
BACKUP_TOO_OLD = conflict(
    "backup.too_old",
    "The backup is of release {release}, and no migration leads on from its tables ({revision}): "
    "restore it with that release.",
    release="0.9.0",
    revision="0050",
)
BACKUP_TARGET_IN_USE = conflict(
    "backup.target_in_use", "The database has tables already: restore into an empty one."
)
BACKUP_VERIFIED_NOW = conflict(
    "backup.verified_now", "Another process verifies a backup at the moment."
)
BACKUP_FOLDER_UNUSABLE = unavailable(
    "backup.folder_unusable",
    "Backups can't be kept in the folder {folder}, which {setting} names: {reason}.",
    folder="/var/backups/pressroom",
    setting="PRESSROOM_BACKUP_URL",
    reason="Permission denied",
)
BACKUP_TOOL_FAILED = unavailable(
    "backup.tool_failed", "{reason}", reason="pg_dump: is not on the PATH"
)
