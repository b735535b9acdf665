"""Whether a job that was not finished is tried again, and when.

A dependency's trouble is not the job's fault. Such a job is retried for some time, however many
attempts that takes. All times are the database's.
"""

import random
from datetime import timedelta

from sqlalchemy import func, select

from core.counters import work_metrics
from core.errors import DomainError
from core.errors.jobs import JOB_GIVEN_UP
from models import Job, JobStatus
from services.jobs.kinds import kind_named
from services.jobs.lease import Lease, LeaseLost, held
from services.jobs.transitions import change, fail, hand_back
from storage.unit_of_work import UnitOfWork

MAX_CRASHES = 3
_MIN_PAUSE_SECONDS = 1.0
# Within the first ten minutes. Later pauses grow with the time that the job has failed.
_MAX_FIRST_PAUSE_SECONDS = 30.0
_MAX_PAUSE_SECONDS = 300.0
_FAILING_PER_PAUSE = 20
_SECONDS_AN_HOUR = 3600


def try_later(uow: UnitOfWork, lease: Lease, *, reason: str, patience: timedelta) -> None:
    """Queue the job again after a pause, or fail it when its patience is over.

    Args:
        reason: in plain words, without secrets: owners read it.
        patience: for kinds that have none of their own.

    Raises ``LeaseLost``.
    """
    failing = func.now() - func.coalesce(Job.failing_since, func.now())
    found = uow.session.scalar(select(func.extract("epoch", failing)).where(*held(lease)))
    if found is None:
        raise LeaseLost(lease.job_id)
    failing_seconds = float(found)
    kind = kind_named(lease.kind)
    if failing_seconds >= (kind.patience or patience).total_seconds():
        hours = f"{round(failing_seconds / _SECONDS_AN_HOUR, 1):g}"
        told = kind.given_up() if kind.given_up else JOB_GIVEN_UP(reason=reason, hours=hours)
        fail(uow, lease, told)
        return
    most = max(_MAX_FIRST_PAUSE_SECONDS, failing_seconds / _FAILING_PER_PAUSE)
    longest = min(_MIN_PAUSE_SECONDS * 2 ** min(lease.retries, 10), most, _MAX_PAUSE_SECONDS)
    # Half of it random, so that jobs that failed together don't return together.
    pause = timedelta(seconds=random.uniform(longest / 2, longest))  # noqa: S311 - no secret
    retry_later(uow, lease, pause, reason)


def retry_later(uow: UnitOfWork, lease: Lease, delay: timedelta, reason: str) -> None:
    """Queue the job again, due after ``delay``; raises ``LeaseLost``."""
    due = func.now() + delay
    again = {
        "run_at": due,
        "send_after": due,
        "sends": 0,
        "retries": Job.retries + 1,
        "failing_since": func.coalesce(Job.failing_since, func.now()),
        "last_reason": reason,
    }
    change(uow, lease, JobStatus.QUEUED, **again)
    lease.is_retried = True
    queue = kind_named(lease.kind).queue
    uow.after_commit(work_metrics.RETRIES.labels(queue, lease.kind).inc)


def crash(uow: UnitOfWork, lease: Lease, error: DomainError) -> None:
    """Count a crash: the job is queued again, or fails at the third. Raises ``LeaseLost``."""
    crashes = lease.crashes + 1
    if crashes >= MAX_CRASHES:
        change(uow, lease, JobStatus.FAILED, error=error, crashes=crashes)
        lease.failed_by = error.code
    else:
        hand_back(uow, lease, crashes=crashes)
        lease.is_retried = True
