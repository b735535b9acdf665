"""The sweep: each second every worker looks for jobs that no worker works on.

It makes the broker dispensable. The sweep sends a queued job again that was not claimed in time. It
queues a running job again whose lease expired, or fails it once it has crashed three workers. Rows
are locked with ``SKIP LOCKED``, so all workers may sweep at once and one handles each row.

Each second it looks at what became due lately, and at all jobs at a pace of their own (``pace``).
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import TextClause, and_, func, select, text, update
from sqlalchemy.exc import OperationalError

from core.counters import work_metrics
from core.errors.jobs import JOB_CANCELLED, JOB_WORKER_LOST
from core.logging import get_logger
from core.queues import Queue
from models import Job, JobStatus
from services.jobs.lease import LEASE_DURATION, has_status
from services.jobs.outbox import (
    FIRST_RESEND,
    MAX_SENDS_IN_TURN,
    MAX_SENT_JOBS_OF_AN_OWNER,
    RECENT,
    send_job,
)
from services.jobs.retries import MAX_CRASHES
from services.jobs.transitions import change_job, requeue_job
from storage.database import Statement
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# A snapshot that stays open for hours (a dump, an export, a report) keeps every row version that
# was current since it began. The entries of finished jobs then stay in the indexes of queued and
# running ones, and such a look costs by how many jobs have ended since. Each second the sweep looks
# at what became due lately, which costs by what there is. The longer a whole look took, the longer
# it waits.

_PAUSE_PER_SECOND = 1000  # whole looks take a thousandth of the time
_MAX_PAUSE_SECONDS = 60.0
# After an outage of the database. Heartbeats come each second.
STEADY_AFTER = LEASE_DURATION + timedelta(seconds=1)
_LONG_WAIT_SECONDS = 1.0


class Pace:
    def __init__(self) -> None:
        self._due_at = -math.inf

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due_at

    def looked(self, seconds: float, *, found: bool) -> None:
        """Note a whole look. Where it found something there may be more: the next one is due."""
        pause = min(seconds * _PAUSE_PER_SECOND, _MAX_PAUSE_SECONDS)
        self._due_at = -math.inf if found else time.monotonic() + pause


class Paces:
    """The paces of one sweeper: a queue with many ended jobs slows down no other."""

    def __init__(self) -> None:
        self.lost = Pace()
        self.queues = {queue: Pace() for queue in Queue}

    def due_queues(self) -> list[Queue]:
        return [queue for queue, pace in self.queues.items() if pace.is_due]


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


log = get_logger(__name__)

# A queue with this many messages has enough work; lost messages are sent again as it drains.
RESEND_BELOW_MESSAGES = 100
_MAX_BACKOFF_SENDS = 3  # 16 seconds
_BATCH = 200


def sweep(resources: Resources, reach: Reach | None = None, paces: Paces | None = None) -> int:
    """Sweep once; returns the number of jobs that were queued or sent again."""
    paces = paces or Paces()
    swept = requeue_lost(resources, reach or Reach(), paces.lost)
    due_queues = paces.due_queues()
    # Each second in each worker: where nothing waits, one small statement is enough.
    looked = resources.database.rows(
        _QUEUES,
        queues=list(Queue),
        whole=[queue in due_queues for queue in Queue],
        recent=RECENT,
    )
    before = 0.0
    for name, is_whole, has_recent, has_any, after in looked:
        began, sent = time.monotonic(), 0
        if has_recent or has_any:
            sent = resend_unclaimed(resources, Queue(name), whole=has_any)
            swept += sent
        if is_whole:
            seconds = after - before + time.monotonic() - began
            paces.queues[Queue(name)].looked(seconds, found=sent > 0)
        before = after
    return swept


# For each queue: whether a job was due lately, whether any is queued (where that is asked), and the
# seconds since the statement began. The joins keep the order in which the queues are looked at.
_QUEUES = Statement("""
    SELECT queue, whole, coalesce(sent.found, unsent.found) IS NOT NULL, queued.found IS NOT NULL,
        CAST(extract(epoch FROM clock_timestamp() - statement_timestamp()) AS float)
    FROM unnest(CAST(:queues AS text[]), CAST(:whole AS boolean[])) AS looked(queue, whole)
    LEFT JOIN LATERAL (
        SELECT 1 AS found FROM jobs
        WHERE status = 'queued' AND jobs.queue = looked.queue AND sends > 0
            AND send_after > now() - CAST(:recent AS interval) AND send_after < now()
        LIMIT 1
    ) AS sent ON true
    LEFT JOIN LATERAL (
        SELECT 1 AS found FROM jobs
        WHERE status = 'queued' AND jobs.queue = looked.queue AND sends = 0
            AND send_after > now() - CAST(:recent AS interval) AND send_after < now()
        LIMIT 1
    ) AS unsent ON true
    LEFT JOIN LATERAL (
        SELECT 1 AS found FROM jobs
        WHERE status = 'queued' AND jobs.queue = looked.queue AND looked.whole
        LIMIT 1
    ) AS queued ON true
    """)


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


_EXPIRED = """
    SELECT id FROM jobs
    WHERE status = 'running' AND lease_expires_at < now() AND lease_expires_at {when}
        AND pg_postmaster_start_time() < now() - CAST(:steady AS interval)
    ORDER BY lease_expires_at LIMIT :batch
"""
_EXPIRED_LATELY = Statement(_EXPIRED.format(when="> now() - CAST(:recent AS interval)"))
_EXPIRED_BEFORE = Statement(_EXPIRED.format(when="<= now() - CAST(:recent AS interval)"))


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


def resend_unclaimed(resources: Resources, queue: Queue, *, whole: bool = True) -> int:
    """Send what no worker has claimed in time, and what waits though its owner has nothing sent.

    Without ``whole``, only what was due lately.
    """
    waiting = resources.broker.waiting(queue)
    if waiting is None:
        return 0
    room = RESEND_BELOW_MESSAGES - waiting
    with resources.unit_of_work() as uow:
        if not uow.session.scalar(_ALONE, {"queue": queue}):
            return 0
        values = {"queue": queue, "room": room, "recent": RECENT}
        if room <= 0:
            uow.session.execute(_KEEP_RECENT, values | {"room": RESEND_BELOW_MESSAGES})
            return 0
        turns = {"in_turn": MAX_SENDS_IN_TURN, "most": MAX_SENT_JOBS_OF_AN_OWNER}
        jobs = _marked(uow, _DUE_LATELY, values | turns)
        if whole and len(jobs) < room:
            jobs += _marked(uow, _OVERLOOKED, values | turns | {"room": room - len(jobs)})
    return sum(send_job(resources.broker, job) for job in jobs)


def _marked(uow: UnitOfWork, found: TextClause, values: dict[str, Any]) -> list[Job]:
    """The jobs that the statement finds, as sent once more."""
    due = list(uow.session.scalars(found, values))
    if not due:
        return []
    # Each pause is longer: a job that only waits for a worker needs few copies of its message.
    pause = FIRST_RESEND * func.power(2, func.least(Job.sends, _MAX_BACKOFF_SENDS))
    statement = (
        update(Job)
        .where(Job.id.in_(due))
        .values(send_after=func.now() + pause, sends=Job.sends + 1)
        .returning(Job)
    )
    return list(uow.session.scalars(statement))


# Only one sweep of a queue at a time: a second one would find the same jobs.
_ALONE = text("SELECT pg_try_advisory_xact_lock(hashtext('jobs.resend'), hashtext(:queue))")

# Jobs whose message may be lost; then, of each owner that has nothing sent though a job waits, the
# one that waits longest. An owner's many jobs must not hide those of others from the first part
# for long, nor from the second: there the whole look finds them.
_DUE_LATELY = text("""
    WITH unclaimed AS (
        SELECT id FROM jobs
        WHERE status = 'queued' AND queue = :queue AND sends > 0
            AND send_after > now() - CAST(:recent AS interval) AND send_after < now()
        ORDER BY send_after LIMIT :room FOR UPDATE SKIP LOCKED
    ), owners AS (
        SELECT DISTINCT on_behalf_of FROM (
            SELECT on_behalf_of FROM jobs
            WHERE status = 'queued' AND queue = :queue AND sends = 0
                AND send_after > now() - CAST(:recent AS interval) AND send_after <= now()
            ORDER BY send_after LIMIT 1000
        ) AS waiting
    ), passed_over AS (
        SELECT first.id FROM owners CROSS JOIN LATERAL (
            SELECT id FROM jobs
            WHERE status = 'queued' AND queue = :queue AND on_behalf_of = owners.on_behalf_of
                AND sends = 0
                AND send_after > now() - CAST(:recent AS interval) AND send_after <= now()
            ORDER BY send_after LIMIT 1 FOR UPDATE SKIP LOCKED
        ) AS first
        WHERE NOT EXISTS (
            SELECT 1 FROM jobs
            WHERE status = 'queued' AND queue = :queue AND on_behalf_of = owners.on_behalf_of
                AND sends = ANY(ARRAY(SELECT generate_series(1, :in_turn)))
                AND send_after > now() - CAST(:recent AS interval)
            OFFSET :most - 1
        )
    )
    SELECT id FROM unclaimed UNION ALL SELECT id FROM passed_over LIMIT :room
    """)

# The queue is full, so its jobs are not sent again. They stay due, and among those that were due
# lately: there their owners' next jobs look for them (``plan_turn``).
_KEEP_RECENT = text("""
    UPDATE jobs SET send_after = now() WHERE id IN (
        SELECT id FROM jobs
        WHERE status = 'queued' AND queue = :queue AND sends > 0
            AND send_after > now() - CAST(:recent AS interval)
            AND send_after < now() - CAST(:recent AS interval) / 2
        ORDER BY send_after LIMIT :room FOR UPDATE SKIP LOCKED
    )
    """)

# Jobs whose message may have been lost for long; then, of each owner that has nothing sent though
# jobs wait, the one that waits longest. The owners are found by skipping from one to the next in
# the index, so an owner's million jobs cost no more than one.
_OVERLOOKED = text("""
    WITH RECURSIVE owners AS (
        (SELECT on_behalf_of FROM jobs WHERE status = 'queued' AND queue = :queue
         ORDER BY on_behalf_of LIMIT 1)
        UNION ALL
        SELECT (SELECT on_behalf_of FROM jobs WHERE status = 'queued' AND queue = :queue
                AND on_behalf_of > owners.on_behalf_of ORDER BY on_behalf_of LIMIT 1)
        FROM owners WHERE on_behalf_of IS NOT NULL
    ), unclaimed AS (
        SELECT id FROM jobs
        WHERE status = 'queued' AND queue = :queue AND sends > 0
            AND send_after <= now() - CAST(:recent AS interval)
        ORDER BY send_after LIMIT :room FOR UPDATE SKIP LOCKED
    ), passed_over AS (
        SELECT first.id FROM owners CROSS JOIN LATERAL (
            SELECT id FROM jobs
            WHERE status = 'queued' AND queue = :queue AND on_behalf_of = owners.on_behalf_of
                AND sends = 0 AND send_after <= now()
            ORDER BY send_after LIMIT 1 FOR UPDATE SKIP LOCKED
        ) AS first
        WHERE NOT EXISTS (
            SELECT 1 FROM jobs
            WHERE status = 'queued' AND queue = :queue AND on_behalf_of = owners.on_behalf_of
                AND sends BETWEEN 1 AND :in_turn
            OFFSET :most - 1
        )
    )
    SELECT id FROM unclaimed UNION ALL SELECT id FROM passed_over LIMIT :room
    """)
