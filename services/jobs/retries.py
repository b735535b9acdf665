"""Decides when failed and crashed jobs are retried.

If a dependency such as the database fails, a job is retried for the time in ``patience``,
regardless of the number of attempts. The retry schedule uses the database's clock.
"""

from datetime import timedelta

from sqlalchemy import func, select

from core.counters import work_metrics
from core.errors.jobs import JOB_GIVEN_UP
from core.pauses import Pauses
from models import Job, JobStatus
from services.jobs.kinds import get_kind
from services.jobs.lease import Lease, LeaseLost, is_held_by
from services.jobs.transitions import change_held_job, fail_job
from storage.unit_of_work import UnitOfWork

MAX_CRASHES = 3
_PAUSES = Pauses.double(timedelta(seconds=1), timedelta(minutes=5), jitter=-0.5)
# The longest pause between two attempts in the first ten minutes after a job's first failure. If
# the first failure was over ten minutes ago, the longest pause is a twentieth of the time since
# that failure.
_MAX_FIRST_PAUSE_SECONDS = 30.0
_FAILING_SECONDS_PER_PAUSE_SECOND = 20
_SECONDS_PER_HOUR = 3600


def retry_or_fail_job(
    uow: UnitOfWork, lease: Lease, *, reason: str, patience: timedelta, was_slow: bool = False
) -> None:
    """Fail the job if it has been retried for long enough.

    Args:
        reason: the job's owner can read it, so it must not contain secrets.
        patience: how long the job is retried, unless its kind has its own ``patience``.
    """
    failing = func.now() - func.coalesce(Job.failing_since, func.now())
    seconds = uow.session.scalar(select(func.extract("epoch", failing)).where(is_held_by(lease)))
    if seconds is None:
        raise LeaseLost(lease.job_id)
    failing_seconds = float(seconds)
    kind = get_kind(lease.kind)
    if failing_seconds >= (kind.patience or patience).total_seconds():
        hours = f"{round(failing_seconds / _SECONDS_PER_HOUR, 1):g}"
        error = kind.given_up() if kind.given_up else JOB_GIVEN_UP(reason=reason, hours=hours)
        fail_job(uow, lease, error)
        return
    longest = max(_MAX_FIRST_PAUSE_SECONDS, failing_seconds / _FAILING_SECONDS_PER_PAUSE_SECOND)
    pause = _PAUSES.choose(lease.retries + 1, timedelta(seconds=longest))
    retry_job_after(uow, lease, pause, reason, was_slow=was_slow)


def retry_job_after(
    uow: UnitOfWork, lease: Lease, pause: timedelta, reason: str, *, was_slow: bool = False
) -> None:
    due_at = func.now() + pause
    changes = {
        "run_at": due_at,
        "send_after": due_at,
        "sends": 0,
        "retries": Job.retries + 1,
        "failing_since": func.coalesce(Job.failing_since, func.now()),
        "last_reason": reason,
        "slow_attempts": Job.slow_attempts + int(was_slow),
    }
    change_held_job(uow, lease, JobStatus.QUEUED, **changes)
    lease.is_retried = True
    queue = get_kind(lease.kind).queue
    uow.after_commit(work_metrics.RETRIES.labels(queue, lease.kind).inc)
