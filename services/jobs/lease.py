"""Gives a worker a lease on a job, so that only one worker at a time can write the job's results.

A worker that claims a job increments the job's ``attempt`` and gets a lease of five seconds, which
it renews each second. If a worker dies, its leases expire, and the sweep requeues its jobs.

A worker can lose its lease because of a long pause or a broken connection. Each write to a job
checks that ``attempt`` is unchanged, and otherwise raises ``LeaseLost``. The column ``attempt`` is
a fencing token (Kleppmann, "How to do distributed locking", 2016).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, func, update
from sqlalchemy.exc import SQLAlchemyError

from core.ids import AccountId
from core.logging import get_logger
from models import Job, JobStatus
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

LEASE_DURATION = timedelta(seconds=5)
RENEW_EVERY_SECONDS = 1.0


class LeaseLost(Exception):
    pass


class JobCancelled(Exception):
    """The job's owner has cancelled the job."""


@dataclass
class Lease:
    """A worker's claim on a job, with the values of the job's row at the time of the claim."""

    job_id: int
    attempt: int
    crashes: int
    retries: int
    kind: str
    account_id: AccountId | None
    subject_id: int | None
    request_id: str | None
    traceparent: str | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    # True if the job was requeued after a failure. The job runner reports the retry to Celery.
    is_retried: bool = False
    # True if the job has done nothing in its last turn, because it waits for another job.
    is_waiting: bool = False
    # The code of the error with which the job failed, for the job runner's report to Celery.
    failed_by: str | None = None
    # Called after each commit that records progress of the job, so that its deadline is renewed.
    on_progress: Callable[[], None] = lambda: None

    @classmethod
    def of_job(cls, job: Job) -> "Lease":
        lease = cls(
            job_id=job.id,
            attempt=job.attempt,
            crashes=job.crashes,
            retries=job.retries,
            kind=job.kind,
            account_id=job.user_id,
            subject_id=job.subject_id,
            request_id=job.request_id,
            traceparent=job.traceparent,
        )
        if job.cancel_requested:
            # The previous attempt of the job ended without noticing that the owner had cancelled
            # the job.
            lease.cancelled.set()
        return lease

    def check_cancelled(self) -> None:
        """Raise ``JobCancelled`` if the owner cancelled the job.

        Long jobs must call this regularly.
        """
        if self.cancelled.is_set():
            raise JobCancelled


def renew_lease(uow: UnitOfWork, lease: Lease) -> None:
    renewed = update(Job).where(is_held_by(lease)).values(lease_expires_at=lease_end())
    cancel_requested = uow.session.scalar(renewed.returning(Job.cancel_requested))
    if cancel_requested is None:
        raise LeaseLost(lease.job_id)
    if cancel_requested:
        lease.cancelled.set()


@contextmanager
def run_heartbeat(renew: Callable[[], None]) -> Iterator[None]:
    """Renew the lease in a separate thread until the ``with`` block ends."""
    stop = threading.Event()

    def renew_until_stop() -> None:
        while not stop.wait(RENEW_EVERY_SECONDS):
            try:
                renew()
            except LeaseLost:
                # End the heartbeat. The thread that runs the job notices the loss of the lease at
                # its next write.
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
    is_job = Job.id == lease.job_id
    is_attempt = Job.attempt == lease.attempt
    return and_(is_job, is_attempt, has_status(JobStatus.RUNNING))


def has_status(status: JobStatus) -> ColumnElement[bool]:
    """Use this condition only in statements that select jobs by id.

    ``concat`` keeps Postgres from using the index on the status. This index would be slow, because
    it retains the entries of ended jobs while a long transaction is open.
    """
    return Job.status == func.concat(status)


def lease_end() -> ColumnElement[datetime]:
    # Use clock_timestamp(), because now() returns the start of the transaction, which may be
    # seconds ago.
    return func.clock_timestamp() + LEASE_DURATION
