"""How long a job is tried that fails for a reason that may pass by itself.

A dependency's trouble is not the work's fault, so a job is tried for a time and not for a number of
times. All times are the database's.
"""

import random
from datetime import timedelta

from sqlalchemy import func, select

from core.errors import DomainError
from core.refusals.jobs import JOB_GIVEN_UP
from models import Job
from services.jobs import lease as leases
from services.jobs.kinds import kind_named
from services.jobs.lease import Lease, LeaseLost
from storage.unit_of_work import UnitOfWork

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
    failing = select(
        func.extract("epoch", func.now() - func.coalesce(Job.failing_since, func.now()))
    )
    found = uow.session.scalar(failing.where(*leases.held(lease)))
    if found is None:
        raise LeaseLost(lease.job_id)
    failing_seconds = float(found)
    kind = kind_named(lease.kind)
    if failing_seconds >= (kind.patience or patience).total_seconds():
        leases.fail(
            uow, lease, kind.given_up() if kind.given_up else _given_up(reason, failing_seconds)
        )
        return
    leases.retry_later(uow, lease, _pause(lease.retries, failing_seconds), reason)


def _pause(retries: int, failing_seconds: float) -> timedelta:
    most = max(_MAX_FIRST_PAUSE_SECONDS, failing_seconds / _FAILING_PER_PAUSE)
    longest = min(_MIN_PAUSE_SECONDS * 2 ** min(retries, 10), most, _MAX_PAUSE_SECONDS)
    # Half of it random, so that jobs that failed together don't return together.
    return timedelta(seconds=random.uniform(longest / 2, longest))  # noqa: S311 - no secret


def _given_up(reason: str, failing_seconds: float) -> DomainError:
    hours = round(failing_seconds / _SECONDS_AN_HOUR, 1)
    return JOB_GIVEN_UP(reason=reason, hours=f"{hours:g}")
