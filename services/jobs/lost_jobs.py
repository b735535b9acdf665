"""Requeues the jobs whose worker was lost."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from sqlalchemy import and_, func, select
from sqlalchemy.exc import OperationalError

from core.counters import work_metrics
from core.errors.jobs import JOB_CANCELLED, JOB_WORKER_LOST
from core.logging import get_logger
from models import Job, JobStatus
from services.jobs.lease import LEASE_DURATION, has_status
from services.jobs.outbox import RECENT
from services.jobs.retries import MAX_CRASHES
from services.jobs.scan_paces import Pace
from services.jobs.transitions import change_job, requeue_job
from storage.database import Statement
from storage.resources import Resources

log = get_logger(__name__)

# After an outage of the database. Heartbeats come each second.
STEADY_AFTER = LEASE_DURATION + timedelta(seconds=1)
_LONG_WAIT_SECONDS = 1.0
_BATCH = 200


class Reach:
    """Since when a sweeper reaches the database without a break.

    An outage of the database lets every lease expire, and is nobody's crash. After an outage no
    lease counts as lost until the workers that live had the time to renew theirs.
    """

    def __init__(self) -> None:
        self._broken_at = -math.inf

    @property
    def is_steady(self) -> bool:
        return time.monotonic() - self._broken_at > STEADY_AFTER.total_seconds()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """For a few statements of milliseconds: a failure is a break, and so is a long wait."""
        began = time.monotonic()
        try:
            yield
        except BaseException:
            self._broken_at = time.monotonic()
            raise
        if time.monotonic() - began > _LONG_WAIT_SECONDS:
            self._broken_at = time.monotonic()


_EXPIRED = """
    SELECT id FROM jobs
    WHERE status = 'running' AND lease_expires_at < now() AND lease_expires_at {when}
        AND pg_postmaster_start_time() < now() - CAST(:steady AS interval)
    ORDER BY lease_expires_at LIMIT :batch
"""
_EXPIRED_LATELY = Statement(_EXPIRED.format(when="> now() - CAST(:recent AS interval)"))
_EXPIRED_BEFORE = Statement(_EXPIRED.format(when="<= now() - CAST(:recent AS interval)"))


def requeue_lost(resources: Resources, reach: Reach, pace: Pace | None = None) -> int:
    pace = pace or Pace()
    bounds = {"recent": RECENT, "steady": STEADY_AFTER, "batch": _BATCH}
    with reach.watched():
        expired = resources.database.rows(_EXPIRED_LATELY, **bounds)
    if pace.is_due:
        began = time.monotonic()
        older = resources.database.rows(_EXPIRED_BEFORE, **bounds)
        pace.looked(time.monotonic() - began, found=bool(older))
        expired += older
    if not reach.is_steady:
        return 0
    return sum(_requeue(resources, job_id) for (job_id,) in expired)


def _requeue(resources: Resources, job_id: int) -> bool:
    """Return one job a transaction, so that a job that can't be requeued holds up no other."""
    mine = Job.id == job_id
    is_steady = func.pg_postmaster_start_time() < func.now() - STEADY_AFTER
    is_lost = and_(has_status(JobStatus.RUNNING), Job.lease_expires_at < func.now(), is_steady)
    held = select(Job).where(mine, is_lost).with_for_update(skip_locked=True)
    try:
        with resources.unit_of_work() as uow:
            job = uow.session.scalar(held)
            if job is None:
                return False
            crashes = job.crashes + 1
            log.warning("job.lease_lost", job_id=job.id, kind=job.kind, crashes=crashes)
            uow.after_commit(work_metrics.LEASES_LOST.labels(job.queue, job.kind).inc)
            if job.cancel_requested:
                to, error = JobStatus.CANCELLED, JOB_CANCELLED()
            elif crashes >= MAX_CRASHES:
                to, error = JobStatus.FAILED, JOB_WORKER_LOST(crashes=crashes)
            else:
                requeue_job(uow, mine, crashes=crashes)
                return True
            change_job(uow, mine, to=to, error=error, crashes=crashes)
            return True
    except OperationalError:
        # The database failed, not the job: the other jobs would fail too.
        raise
    except Exception:  # such as a kind that this release does not know: the job stays as it is
        log.exception("sweep.job_broke", job_id=job_id)
        return False
