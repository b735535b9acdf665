"""A worker's lease on a job, which fences the worker's writes.

A claim increments the job's ``attempt`` and starts a lease of five seconds. The worker renews the
lease each second. A worker that dies stops renewing its leases, so the sweep requeues its jobs.

Every write of a worker about a job checks ``attempt``. A long pause or a cut connection can cost a
worker its lease. The next write of a worker without a lease finds no row and raises ``LeaseLost``.
The transaction rolls back, so the worker can't overwrite the work of the next attempt. The column
``attempt`` is a fencing token (Kleppmann, "How to do distributed locking", 2016).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, func, update
from sqlalchemy.exc import SQLAlchemyError

from core.logging import get_logger
from models import Job, JobStatus
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

LEASE_DURATION = timedelta(seconds=5)
RENEW_EVERY_SECONDS = 1.0


class LeaseLost(Exception):
    """The end of a lease, because a later attempt claimed the job or the job ended."""


class JobCancelled(Exception):
    """A signal to a worker that the job's owner cancelled the job."""


@dataclass
class Lease:
    """A worker's claim on a job, with the values of the job's row at the claim."""

    job_id: int
    attempt: int
    crashes: int
    retries: int
    kind: str
    user_id: int | None
    subject_id: int | None
    request_id: str | None
    traceparent: str | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    # True after a failed turn whose job was requeued. The job runner reports the retry to Celery.
    is_retried: bool = False
    # The code of the error that failed the job. The job runner reports the code to Celery.
    failed_by: str | None = None

    @classmethod
    def of_job(cls, job: Job) -> "Lease":
        lease = cls(
            job_id=job.id,
            attempt=job.attempt,
            crashes=job.crashes,
            retries=job.retries,
            kind=job.kind,
            user_id=job.user_id,
            subject_id=job.subject_id,
            request_id=job.request_id,
            traceparent=job.traceparent,
        )
        if job.cancel_requested:
            # An earlier attempt handed the job back before the worker noticed the cancellation.
            lease.cancelled.set()
        return lease

    def check_cancelled(self) -> None:
        """Raise ``JobCancelled`` if the owner cancelled the job. Long jobs must check regularly."""
        if self.cancelled.is_set():
            raise JobCancelled


def renew_lease(uow: UnitOfWork, lease: Lease) -> None:
    """Extend the lease to five seconds from now. Raises ``LeaseLost``."""
    renewed = update(Job).where(is_held_by(lease)).values(lease_expires_at=lease_end())
    cancel_requested = uow.session.scalar(renewed.returning(Job.cancel_requested))
    if cancel_requested is None:
        raise LeaseLost(lease.job_id)
    if cancel_requested:
        lease.cancelled.set()


@contextmanager
def run_heartbeat(renew: Callable[[], None]) -> Iterator[None]:
    """Call ``renew`` each second in a separate thread until the block ends."""
    stop = threading.Event()

    def renew_until_stop() -> None:
        while not stop.wait(RENEW_EVERY_SECONDS):
            try:
                renew()
            except LeaseLost:
                # In the thread that does the work, the next write raises LeaseLost too.
                return
            except SQLAlchemyError as error:
                log.warning("lease.not_renewed", reason=type(error).__name__)

    thread = threading.Thread(target=renew_until_stop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def is_held_by(lease: Lease) -> ColumnElement[bool]:
    """Return the condition that the lease's attempt still holds the job."""
    is_job = Job.id == lease.job_id
    is_attempt = Job.attempt == lease.attempt
    return and_(is_job, is_attempt, has_status(JobStatus.RUNNING))


def has_status(status: JobStatus) -> ColumnElement[bool]:
    """Return the condition that a job has this status, for statements that find the job by id.

    The concatenation hides the status from the query planner, so that the planner uses the index of
    ids. Otherwise the planner might choose the index of jobs with this status, expecting an empty
    index. During a long snapshot, the index by status also keeps the entries of ended jobs.
    """
    return Job.status == func.concat(status)


def lease_end() -> ColumnElement[datetime]:
    """Return the expression for the end of a lease that is claimed or renewed now."""
    # now() returns the start of the transaction, which may be seconds ago.
    return func.clock_timestamp() + LEASE_DURATION
