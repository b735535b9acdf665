"""Records the failure of a job, and decides whether to retry, cancel or fail the job."""

import time
from datetime import timedelta

import psycopg2
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from core.errors import DomainError, MachineBusy, TransientError
from core.errors.jobs import JOB_BROKE
from core.logging import get_logger
from services.jobs.lease import JobCancelled, Lease, LeaseLost
from services.jobs.retries import retry_or_fail_job
from services.jobs.transitions import cancel_job, fail_job
from storage.resources import Resources

log = get_logger(__name__)

# The exceptions for an unreachable database. A job is retried if the database is unreachable.
_DATABASE_FAILURES = (
    OperationalError,
    InterfaceError,
    PoolTimeoutError,
    # The exceptions of psycopg2, which statements that bypass SQLAlchemy raise directly.
    psycopg2.OperationalError,
    psycopg2.InterfaceError,
)
_MAX_OUTAGE_SECONDS = 30.0
_OUTAGE_PAUSE_SECONDS = 0.5


def record_failure(resources: Resources, lease: Lease, error: Exception) -> None:
    """Record the failure of a job, or raise ``LeaseLost``.

    While the database is unreachable, retry for half a minute. If the failure isn't recorded, the
    lease expires, which counts as a crash.
    """
    deadline = time.monotonic() + _MAX_OUTAGE_SECONDS
    while True:
        try:
            _record_failure_once(resources, lease, error)
        except SQLAlchemyError as failure:
            if not _is_database_unreachable(failure) or time.monotonic() > deadline:
                raise
            time.sleep(_OUTAGE_PAUSE_SECONDS)
        else:
            return


def _record_failure_once(resources: Resources, lease: Lease, error: Exception) -> None:
    temporary_reason = _find_temporary_reason(error)
    with resources.unit_of_work() as uow:
        match error:
            case LeaseLost():
                raise error
            case JobCancelled():
                cancel_job(uow, lease)
            case DomainError():
                fail_job(uow, lease, error)
            case _ if temporary_reason is not None:
                log.warning("job.retried", reason=str(error))
                patience = timedelta(seconds=resources.settings.patience)
                was_slow = isinstance(error, MachineBusy)
                retry_or_fail_job(
                    uow, lease, reason=temporary_reason, patience=patience, was_slow=was_slow
                )
            case _:
                log.error("job.broke", exc_info=error)
                fail_job(uow, lease, JOB_BROKE())


def _find_temporary_reason(error: Exception) -> str | None:
    """Return the reason, worded for the job's owner, or ``None`` for a permanent failure."""
    if _is_database_unreachable(error):
        return "The database is not responding."
    if isinstance(error, TransientError):
        return str(error)
    return None


def _is_database_unreachable(error: Exception) -> bool:
    # SQLAlchemy sets ``connection_invalidated`` for every psycopg2 exception that reports a broken
    # connection.
    is_disconnected = isinstance(error, DBAPIError) and error.connection_invalidated
    return is_disconnected or isinstance(error, _DATABASE_FAILURES)
