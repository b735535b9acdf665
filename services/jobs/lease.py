"""A worker's lease on a job, which fences the worker's writes.

A claim increments the job's ``attempt`` and starts a lease of five seconds. The worker renews the
lease each second. A worker that dies stops renewing, and the sweep requeues the job.

Every later write of the worker checks ``attempt``. A long pause or a cut connection can cost a
worker its lease. Its next write then finds no row and raises ``LeaseLost``, which rolls the
transaction back, so that the work of its successor stands. (``attempt`` is a fencing token:
M. Kleppmann, "How to do distributed locking", 2016.)
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
    """Another attempt holds the job, or the job has ended. This attempt must not write."""


class JobCancelled(Exception):
    """The job's owner cancelled it."""


@dataclass
class Lease:
    """A claimed job, as its row was at the claim."""

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
    # The job runner reports these two to Celery: whether this turn failed and the job was requeued,
    # and the code of the error that failed the job.
    is_retried: bool = False
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
            # The owner cancelled an earlier attempt, which handed the job back before it noticed.
            lease.cancelled.set()
        return lease

    def check_cancelled(self) -> None:
        """Raise ``JobCancelled`` if the owner cancelled the job. Long work calls this regularly."""
        if self.cancelled.is_set():
            raise JobCancelled


def renew_lease(uow: UnitOfWork, lease: Lease) -> None:
    """Extend the lease to five seconds from now; raises ``LeaseLost``."""
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
                # The next write of the work raises LeaseLost too.
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
    """The condition that a row is the lease's job and that no later attempt has claimed the job."""
    is_job = Job.id == lease.job_id
    is_attempt = Job.attempt == lease.attempt
    return and_(is_job, is_attempt, has_status(JobStatus.RUNNING))


def has_status(status: JobStatus) -> ColumnElement[bool]:
    """The condition that a job, which the statement finds by its id, has this status.

    The concatenation hides the status from the query planner, so that the planner uses the id's
    index. Otherwise it might use the index of all jobs with this status, because it believes that
    index to be empty. But during a long snapshot that index also keeps the jobs that have ended.
    """
    return Job.status == func.concat(status)


def lease_end() -> ColumnElement[datetime]:
    """The end of a lease that starts or is renewed at this moment."""
    # now() would be the start of the transaction, which may be seconds ago.
    return func.clock_timestamp() + LEASE_DURATION
