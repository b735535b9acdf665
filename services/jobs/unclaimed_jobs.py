"""Sends queued jobs again that no worker has claimed."""

from typing import Any

from sqlalchemy import TextClause, func, text, update

from core.queues import Queue
from models import Job
from services.jobs.outbox import (
    FIRST_RESEND,
    MAX_SENDS_IN_TURN,
    MAX_SENT_JOBS_OF_AN_OWNER,
    RECENT,
    send_job,
)
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# A queue with this many messages has enough work; lost messages are sent again as it drains.
RESEND_BELOW_MESSAGES = 100
_MAX_BACKOFF_SENDS = 3  # 16 seconds

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
