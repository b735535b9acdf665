"""Sends queued jobs again whose message may be lost, or whose turn was missed."""

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

# A queue with this many messages has enough work. Lost messages are sent again as it drains.
RESEND_BELOW_MESSAGES = 100
_MAX_BACKOFF_SENDS = 3  # 16 seconds

# Only one sweep per queue runs at a time, because a second one would find the same jobs.
_LOCK_QUEUE = text("SELECT pg_try_advisory_xact_lock(hashtext('jobs.resend'), hashtext(:queue))")

# Finds jobs whose message may be lost. Then, for each owner who has waiting jobs but none sent,
# finds the job that has waited longest. An owner's many jobs must not hide the jobs of other owners
# for long: the full scan finds those.
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

# The jobs of a full queue are not sent again. They must stay due and recent, because ``plan_turn``
# looks for an owner's sent jobs among the recent ones.
_KEEP_RECENT = text("""
    UPDATE jobs SET send_after = now() WHERE id IN (
        SELECT id FROM jobs
        WHERE status = 'queued' AND queue = :queue AND sends > 0
            AND send_after > now() - CAST(:recent AS interval)
            AND send_after < now() - CAST(:recent AS interval) / 2
        ORDER BY send_after LIMIT :room FOR UPDATE SKIP LOCKED
    )
    """)

# The full scan. Finds jobs whose message may have been lost long ago. Then, for each owner who has
# waiting jobs but none sent, finds the job that has waited longest. The recursion skips from owner
# to owner in the index, so a million jobs of one owner cost no more than one job.
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


def resend_unclaimed_jobs(resources: Resources, queue: Queue, *, full_scan: bool = True) -> int:
    """Send unclaimed jobs again, and waiting jobs whose turn was missed.

    Without ``full_scan``, only jobs that became due recently are found.
    """
    waiting = resources.broker.count_waiting(queue)
    if waiting is None:
        return 0
    room = RESEND_BELOW_MESSAGES - waiting
    with resources.unit_of_work() as uow:
        if not uow.session.scalar(_LOCK_QUEUE, {"queue": queue}):
            return 0
        values = {"queue": queue, "room": room, "recent": RECENT}
        if room <= 0:
            uow.session.execute(_KEEP_RECENT, values | {"room": RESEND_BELOW_MESSAGES})
            return 0
        turns = {"in_turn": MAX_SENDS_IN_TURN, "most": MAX_SENT_JOBS_OF_AN_OWNER}
        jobs = _mark_as_sent(uow, _DUE_LATELY, values | turns)
        if full_scan and len(jobs) < room:
            jobs += _mark_as_sent(uow, _OVERLOOKED, values | turns | {"room": room - len(jobs)})
    return sum(send_job(resources.broker, job) for job in jobs)


def _mark_as_sent(uow: UnitOfWork, query: TextClause, values: dict[str, Any]) -> list[Job]:
    """Mark the jobs that the query finds as sent once more, and return them."""
    job_ids = list(uow.session.scalars(query, values))
    if not job_ids:
        return []
    # Each pause is longer: a job that only waits for a worker needs few copies of its message.
    pause = FIRST_RESEND * func.power(2, func.least(Job.sends, _MAX_BACKOFF_SENDS))
    statement = (
        update(Job)
        .where(Job.id.in_(job_ids))
        .values(send_after=func.now() + pause, sends=Job.sends + 1)
        .returning(Job)
    )
    return list(uow.session.scalars(statement))
