"""The sweep: each second every worker looks for jobs that no worker works on.

It makes the broker dispensable. The sweep sends a queued job again that was not claimed in time. It
queues a running job again whose lease expired, or fails it once it has crashed three workers. Rows
are locked with ``SKIP LOCKED``, so all workers may sweep at once and one handles each row.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import redis
from sqlalchemy import ColumnElement, func, select, text, update
from sqlalchemy.exc import OperationalError

from core.lanes import Lane
from core.logging import get_logger
from core.refusals.jobs import JOB_CANCELLED, JOB_WORKER_LOST
from models import Job, JobStatus
from services.jobs.lease import MAX_CRASHES
from services.jobs.outbox import (
    FIRST_RESEND,
    MAX_SENDS_IN_TURN,
    MAX_SENT_JOBS_OF_AN_OWNER,
    send,
)
from services.jobs.transitions import LEASE, requeue, transition
from storage.broker import queue_name
from storage.database import Statement
from storage.resources import Resources

log = get_logger(__name__)

# A lane with this many messages has enough work; lost messages are sent again as it drains.
RESEND_BELOW_MESSAGES = 100
# After an outage of the database. Heartbeats come each second.
STEADY_AFTER = LEASE + timedelta(seconds=1)
_LONG_WAIT_SECONDS = 1.0
_MAX_BACKOFF_SENDS = 3  # 16 seconds
_BATCH = 200


class Reach:
    """Since when a sweeper reaches the database without a break.

    An outage of the database lets every lease expire, and is nobody's crash. So after one no lease
    counts as lost until the workers that live had the time to renew theirs.
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


_ANY_QUEUED = Statement("SELECT 1 FROM jobs WHERE status = 'queued' LIMIT 1")


def sweep(resources: Resources, reach: Reach | None = None) -> int:
    """Sweep once; returns the number of jobs that were queued or sent again."""
    requeued = requeue_lost(resources, reach or Reach())
    # Each second in each worker: where nothing waits, one small statement is enough.
    if not resources.database.rows(_ANY_QUEUED):
        return requeued
    return requeued + sum(resend_unclaimed(resources, lane) for lane in Lane)


def requeue_lost(resources: Resources, reach: Reach) -> int:
    with reach.watched(), resources.unit_of_work() as uow:
        found = select(Job.id).where(*_lost()).order_by(Job.lease_expires_at).limit(_BATCH)
        expired = list(uow.session.scalars(found))
    if not reach.is_steady:
        return 0
    return sum(_requeue(resources, job_id) for job_id in expired)


def _lost() -> tuple[ColumnElement[bool], ...]:
    is_steady = func.pg_postmaster_start_time() < func.now() - STEADY_AFTER
    return Job.status == JobStatus.RUNNING, Job.lease_expires_at < func.now(), is_steady


def _requeue(resources: Resources, job_id: int) -> bool:
    """One job a transaction, so that a job that can't be requeued holds up no other."""
    mine = Job.id == job_id
    held = select(Job).where(mine, *_lost()).with_for_update(skip_locked=True)
    try:
        with resources.unit_of_work() as uow:
            job = uow.session.scalar(held)
            if job is None:
                return False
            crashes = job.crashes + 1
            log.warning("job.lease_lost", job_id=job.id, kind=job.kind, crashes=crashes)
            if job.cancel_requested:
                to, error = JobStatus.CANCELLED, JOB_CANCELLED()
            elif crashes >= MAX_CRASHES:
                to, error = JobStatus.FAILED, JOB_WORKER_LOST(crashes=crashes)
            else:
                requeue(uow, mine, crashes=crashes)
                return True
            transition(uow, mine, to=to, error=error, crashes=crashes)
            return True
    except OperationalError:
        # The database failed, not the job: the other jobs would fail too.
        raise
    except Exception:  # such as a kind that this release does not know: the job stays as it is
        log.exception("sweep.job_broke", job_id=job_id)
        return False


def resend_unclaimed(resources: Resources, lane: Lane) -> int:
    """Send what no worker has claimed in time, and what waits though its owner has nothing sent."""
    try:
        room = RESEND_BELOW_MESSAGES - int(resources.redis.llen(queue_name(lane)))
    except redis.RedisError as error:
        log.warning("sweep.broker_unreachable", reason=type(error).__name__)
        return 0
    if room <= 0:
        return 0
    # Each pause is longer: a job that only waits for a worker needs few copies of its message.
    pause = FIRST_RESEND * func.power(2, func.least(Job.sends, _MAX_BACKOFF_SENDS))
    with resources.unit_of_work() as uow:
        if not uow.session.scalar(_ALONE, {"lane": lane}):
            return 0
        values = {"lane": lane, "room": room, "most": MAX_SENT_JOBS_OF_AN_OWNER}
        due = list(uow.session.scalars(_DUE, values | {"in_turn": MAX_SENDS_IN_TURN}))
        statement = (
            update(Job)
            .where(Job.id.in_(due))
            .values(send_after=func.now() + pause, sends=Job.sends + 1)
            .returning(Job)
        )
        jobs = list(uow.session.scalars(statement)) if due else []
    return sum(send(resources.broker, job) for job in jobs)


# One sweep of a lane at a time: a second one would find the same jobs.
_ALONE = text("SELECT pg_try_advisory_xact_lock(hashtext('jobs.resend'), hashtext(:lane))")

# Jobs whose message may be lost; then, of each owner that has nothing sent though jobs wait, the
# one that waits longest. The owners are found by skipping from one to the next in the index, so an
# owner's million jobs cost no more than one.
_DUE = text(
    """
    WITH RECURSIVE owners AS (
        (SELECT on_behalf_of FROM jobs WHERE status = 'queued' AND lane = :lane
         ORDER BY on_behalf_of LIMIT 1)
        UNION ALL
        SELECT (SELECT on_behalf_of FROM jobs WHERE status = 'queued' AND lane = :lane
                AND on_behalf_of > owners.on_behalf_of ORDER BY on_behalf_of LIMIT 1)
        FROM owners WHERE on_behalf_of IS NOT NULL
    ), unclaimed AS (
        SELECT id FROM jobs
        WHERE status = 'queued' AND lane = :lane AND sends > 0 AND send_after < now()
        ORDER BY send_after LIMIT :room FOR UPDATE SKIP LOCKED
    ), passed_over AS (
        SELECT first.id FROM owners CROSS JOIN LATERAL (
            SELECT id FROM jobs
            WHERE status = 'queued' AND lane = :lane AND on_behalf_of = owners.on_behalf_of
                AND sends = 0 AND send_after <= now()
            ORDER BY send_after LIMIT 1 FOR UPDATE SKIP LOCKED
        ) AS first
        WHERE NOT EXISTS (
            SELECT 1 FROM jobs
            WHERE status = 'queued' AND lane = :lane AND on_behalf_of = owners.on_behalf_of
                AND sends BETWEEN 1 AND :in_turn
            OFFSET :most - 1
        )
    )
    SELECT id FROM unclaimed UNION ALL SELECT id FROM passed_over LIMIT :room
    """
)
