"""A worker's lease on a job, which fences the worker's writes.

A claim counts the job's ``attempt`` up and takes a lease of five seconds. The worker renews the
lease each second. A worker that dies stops renewing, and the sweep queues the job again.

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

from sqlalchemy import ColumnElement, func, update
from sqlalchemy.exc import SQLAlchemyError

from core.logging import get_logger
from models import Job, JobStatus
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

LEASE = timedelta(seconds=5)
RENEW_EVERY_SECONDS = 1.0


class LeaseLost(Exception):
    """Another attempt holds the job, or the job has ended: this attempt may write nothing."""


class JobCancelled(Exception):
    """The job's owner cancelled it."""


@dataclass
class Lease:
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
    # For whoever watches the tasks: whether the work of this turn failed and is done again later,
    # and the code of the error by which the job failed.
    is_retried: bool = False
    failed_by: str | None = None

    def check_cancelled(self) -> None:
        """Raises ``JobCancelled``; long work calls it between steps."""
        if self.cancelled.is_set():
            raise JobCancelled

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


def renew(uow: UnitOfWork, lease: Lease) -> None:
    """Extend the lease to five seconds from now; raises ``LeaseLost``."""
    renewed = update(Job).where(*held(lease)).values(lease_expires_at=lease_end())
    cancel_requested = uow.session.scalar(renewed.returning(Job.cancel_requested))
    if cancel_requested is None:
        raise LeaseLost(lease.job_id)
    if cancel_requested:
        lease.cancelled.set()


def held(lease: Lease) -> tuple[ColumnElement[bool], ...]:
    return (Job.id == lease.job_id, Job.attempt == lease.attempt, has_status(JobStatus.RUNNING))


def has_status(status: JobStatus) -> ColumnElement[bool]:
    """Return whether a job that is found by its id has this status.

    The planner does not know the value that is compared, and so finds the job by its id. It would
    take an index of all such jobs for empty, in which a long snapshot keeps those that ended since.
    """
    return Job.status == func.concat(status)


def lease_end() -> ColumnElement[datetime]:
    # Not now(), which is the transaction's start and may be seconds ago.
    return func.clock_timestamp() + LEASE


@contextmanager
def heartbeat(renew: Callable[[], None]) -> Iterator[None]:
    """Renew the lease each second in a thread of its own, until the block ends."""
    stop = threading.Event()

    def renew_until_stop() -> None:
        while not stop.wait(RENEW_EVERY_SECONDS):
            try:
                renew()
            except LeaseLost:
                # The work's next write raises too; until then it goes on in vain.
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
