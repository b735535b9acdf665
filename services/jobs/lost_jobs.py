"""Requeues running jobs whose worker crashed or lost its lease.

A job fails if its workers crash too often. An expired lease counts as a crash until its worker
shows that it is alive (``transitions.forgive_crash``).
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import and_, func, select
from sqlalchemy.exc import OperationalError

from core.counters import work_metrics
from core.errors.jobs import JOB_CANCELLED, JOB_WORKER_LOST
from core.logging import get_logger
from models import Job, JobStatus
from services.jobs.lease import LEASE_DURATION, has_status
from services.jobs.outbox import RECENT_WINDOW
from services.jobs.retries import MAX_CRASHES
from services.jobs.scan_paces import ScanPace
from services.jobs.transitions import change_job, requeue_job
from storage.database import Statement
from storage.resources import Resources

log = get_logger(__name__)

# How long live workers may take to renew their leases after a database outage.
OUTAGE_GRACE_PERIOD = LEASE_DURATION + timedelta(seconds=1)
# A job fails only after its last lease has been expired for this time, so that workers which are
# slow, but alive, can show it.
LAST_CRASH_PATIENCE = timedelta(seconds=30)
_LONG_WAIT_SECONDS = 1.0
_MAX_SLOW_SECONDS = 10.0
_MAX_JOBS_PER_SCAN = 200

# Finds running jobs with an expired lease. The query ignores expired leases shortly after the
# database server has started, because workers couldn't renew their leases during the downtime.
_FIND_EXPIRED = """
    SELECT id, CAST(extract(epoch FROM now() - lease_expires_at) AS float) FROM jobs
    WHERE status = 'running' AND lease_expires_at < now() AND lease_expires_at {when}
        AND pg_postmaster_start_time() < now() - CAST(:steady AS interval)
    ORDER BY lease_expires_at LIMIT :batch
"""
_FIND_RECENTLY_EXPIRED = Statement(_FIND_EXPIRED.format(when="> now() - CAST(:recent AS interval)"))
_FIND_LONG_EXPIRED = Statement(_FIND_EXPIRED.format(when="<= now() - CAST(:recent AS interval)"))


class DatabaseWatch:
    """Remembers the last time during which the sweeper could not reach the database.

    During a database outage, leases expire although no worker has crashed. For a while after an
    outage, leases that expired since its start are ignored, so that live workers can renew them.
    """

    def __init__(self) -> None:
        self._outage_began_at = -math.inf
        self._outage_ended_at = -math.inf

    @property
    def excused_seconds(self) -> float:
        """Return how long ago a lease may have expired because of the last outage."""
        now = time.monotonic()
        if now - self._outage_ended_at > OUTAGE_GRACE_PERIOD.total_seconds():
            return 0.0
        return now - self._outage_began_at

    @contextmanager
    def observe(self) -> Iterator[None]:
        """Record an outage if the ``with`` block fails or takes more than a second."""
        began_at = time.monotonic()
        try:
            yield
        except BaseException:
            self._record_outage(began_at, math.inf)
            raise
        if time.monotonic() - began_at > _LONG_WAIT_SECONDS:
            # On a busy machine, every statement can take more than a second for hours, but lost
            # jobs must be requeued.
            self._record_outage(began_at, _MAX_SLOW_SECONDS)

    def _record_outage(self, began_at: float, max_seconds: float) -> None:
        now = time.monotonic()
        is_new = began_at - self._outage_ended_at > OUTAGE_GRACE_PERIOD.total_seconds()
        earliest = began_at if is_new else self._outage_began_at
        self._outage_began_at = max(earliest, min(began_at, now - max_seconds))
        self._outage_ended_at = now


def requeue_lost_jobs(
    resources: Resources, watch: DatabaseWatch, pace: ScanPace | None = None
) -> int:
    pace = pace or ScanPace()
    bounds = {"recent": RECENT_WINDOW, "steady": OUTAGE_GRACE_PERIOD, "batch": _MAX_JOBS_PER_SCAN}
    with watch.observe():
        expired = resources.database.rows(_FIND_RECENTLY_EXPIRED, **bounds)
    if pace.is_due:
        began_at = time.monotonic()
        older = resources.database.rows(_FIND_LONG_EXPIRED, **bounds)
        pace.record_scan(time.monotonic() - began_at, has_results=bool(older))
        expired += older
    excused_seconds = watch.excused_seconds
    lost_ids = [job_id for job_id, seconds in expired if seconds >= excused_seconds]
    return sum(_requeue_lost_job(resources, job_id) for job_id in lost_ids)


def _requeue_lost_job(resources: Resources, job_id: int) -> bool:
    """Return whether the job changed. Log errors about the job, so that the sweep continues."""
    is_job = Job.id == job_id
    is_steady = func.pg_postmaster_start_time() < func.now() - OUTAGE_GRACE_PERIOD
    is_lost = and_(has_status(JobStatus.RUNNING), Job.lease_expires_at < func.now(), is_steady)
    query = select(Job).where(is_job, is_lost).with_for_update(skip_locked=True)
    try:
        with resources.unit_of_work() as uow:
            job = uow.session.scalar(query)
            if job is None:
                return False
            crashes = job.crashes + 1
            is_last = crashes >= MAX_CRASHES and not job.cancel_requested
            is_given_up = Job.lease_expires_at < func.now() - LAST_CRASH_PATIENCE
            if is_last and not uow.session.scalar(select(is_given_up).where(is_job)):
                return False
            log.warning("job.lease_lost", job_id=job.id, kind=job.kind, crashes=crashes)
            uow.after_commit(work_metrics.LEASES_LOST.labels(job.queue, job.kind).inc)
            counts: dict[str, Any] = {
                "crashes": crashes,
                "crashed_attempts": func.array_append(Job.crashed_attempts, job.attempt),
            }
            if job.cancel_requested:
                error = JOB_CANCELLED()
                change_job(uow, is_job, to=JobStatus.CANCELLED, error=error, **counts)
            elif is_last:
                error = JOB_WORKER_LOST(crashes=crashes)
                change_job(uow, is_job, to=JobStatus.FAILED, error=error, **counts)
            else:
                requeue_job(uow, is_job, **counts)
            return True
    except OperationalError:
        # Stop, because the database is unreachable and requeuing the remaining jobs would fail.
        raise
    except Exception:  # Log the error, because one faulty job must not stop the sweep.
        log.exception("sweep.job_broke", job_id=job_id)
        return False
