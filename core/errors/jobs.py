"""Errors about jobs, event streams of jobs, maintenance and backups."""

from core.errors.catalogue import conflict, damaged, not_found, rate_limited, unavailable

JOB_NOT_FOUND = not_found("job.not_found", "There is no job with this id.")
JOB_NOT_FOUND_BY_ID = not_found(
    "job.not_found", "There is no job with the id {job_id}.", job_id=4711
)
JOB_NOT_RETRYABLE = conflict(
    "job.not_retryable",
    "Jobs of the kind {kind} with the status {status} can't be retried.",
    kind="members.import",
    status="succeeded",
)
JOBS_TOO_MANY_STREAMS = rate_limited(
    "jobs.too_many_streams",
    "A user can have at most {most} open event streams. Close a stream first.",
    retry_after=5,
    most=10,
)
MAINTENANCE_NOT_FOUND = not_found(
    "maintenance.not_found",
    "There is no maintenance task named {name}. Use one of: {names}.",
    name="maintenance.tidy",
    names="maintenance.purge, topups.poll",
)
MAINTENANCE_RUNNING = conflict(
    "maintenance.running",
    "The maintenance task {name} is already running. Try again after the task has finished.",
    name="maintenance.purge",
)
JOB_CANCELLED = conflict("job.cancelled", "The job was cancelled.")
JOB_BROKE = damaged("job.internal_error", "The job failed because of an internal error.")
JOB_GIVEN_UP = unavailable(
    "job.given_up",
    "{reason} The job was retried for {hours} hours.",
    reason="The object storage is not responding (ReadTimeoutError).",
    hours=24,
)
JOB_WORKER_LOST = damaged(
    "job.worker_lost", "The job failed because its worker crashed {crashes} times.", crashes=3
)
JOB_ROWS_FAILED = damaged(
    "job.rows_failed",
    "Lines {first} to {last} could not be imported because of an internal error. All other rows "
    "were imported.",
    first=10_002,
    last=20_001,
)
JOB_OPT_OUTS_FAILED = damaged(
    "job.rows_failed",
    "The opt-outs in lines {first} to {last} could not be imported because of an internal "
    "error. No members were added.",
    first=10_002,
    last=20_001,
)

BACKUP_NOT_FOUND = not_found(
    "backup.not_found", "There is no complete backup {which}.", which="20260314T030000.000000Z-7f3k"
)
BACKUP_DAMAGED = damaged(
    "backup.damaged",
    "The backup is damaged: {name}: {reason}.",
    name="backups/20260314T030000.000000Z-7f3k/database/000004",
    reason="the file is missing",
)
BACKUP_KEY_MISSING = conflict(
    "backup.key_missing",
    "The backup is encrypted with the key {key}. Add this key to {setting}.",
    key="k1",
    setting="PRESSROOM_SECRET_KEYS",
)
BACKUP_KEY_DIFFERS = conflict(
    "backup.key_differs",
    "The key {key} in {setting} differs from the key with which the backup was encrypted.",
    key="k1",
    setting="PRESSROOM_SECRET_KEYS",
)
BACKUP_TOO_NEW = conflict(
    "backup.too_new",
    "The backup was made by release {release}, whose database revision ({revision}) is newer than "
    "this release's.",
    release="2.1.0",
    revision="0031",
)
BACKUP_TOO_OLD = conflict(
    "backup.too_old",
    "The backup was made by release {release}, whose database revision ({revision}) can't be "
    "migrated. Restore the backup with release {release}.",
    release="0.9.0",
    revision="0050",
)
BACKUP_TARGET_IN_USE = conflict(
    "backup.target_in_use",
    "The database already has tables. Restore the backup into an empty database.",
)
BACKUP_VERIFIED_NOW = conflict(
    "backup.verified_now", "Another process is already verifying a backup."
)
BACKUP_FOLDER_UNUSABLE = unavailable(
    "backup.folder_unusable",
    "The backup folder {folder} in {setting} can't be used: {reason}.",
    folder="/var/backups/pressroom",
    setting="PRESSROOM_BACKUP_URL",
    reason="Permission denied",
)
BACKUP_TOOL_FAILED = unavailable(
    "backup.tool_failed", "{reason}", reason="pg_dump is not on the PATH"
)
