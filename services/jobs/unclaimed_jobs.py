"""Sends unclaimed jobs again, and sends waiting jobs that were not sent when they became due."""

from datetime import timedelta
from typing import Any

from sqlalchemy import TextClause, func, text, update

from core.pauses import Pauses
from core.queues import Queue
from models import Job
from services.jobs.outbox import (
    FIRST_RESEND_DELAY,
    MAX_SENDS_IN_TURN,
    MAX_SENT_JOBS_OF_AN_OWNER,
    RECENT_WINDOW,
    send_job,
)
from services.jobs.pauses import build_pause
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# If a queue contains at least this many messages, its workers are busy, and jobs aren't sent again.
RESEND_BELOW_MESSAGES = 100
# The delays before sending a job again.
_RESEND_DELAYS = Pauses.double(FIRST_RESEND_DELAY, timedelta(seconds=16))

# Only one process at a time searches a queue for unclaimed jobs, because several processes would
# find the same jobs.
_LOCK_QUEUE = text("SELECT pg_try_advisory_xact_lock(hashtext('jobs.resend'), hashtext(:queue))")

# Finds jobs that became due recently and must be sent. ``unclaimed`` contains sent jobs that no
# worker has claimed, perhaps because a message was lost. ``passed_over`` contains the
# longest-waiting job of each owner with fewer than ``max_sent`` jobs in the queue. Only 1000
# waiting jobs are read, so one owner's many jobs can hide the jobs of other owners until the next
# full scan.
_FIND_RECENTLY_DUE = text("""
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
            OFFSET :max_sent - 1
        )
    )
    SELECT id FROM unclaimed UNION ALL SELECT id FROM passed_over LIMIT :room
    """)

# Increases ``send_after`` of sent jobs while a queue is full, so that the jobs aren't sent again.
# ``send_after`` must stay within ``RECENT_WINDOW``, because ``plan_turn`` looks for sent jobs only
# there.
_POSTPONE_RESENDS = text("""
    UPDATE jobs SET send_after = now() WHERE id IN (
        SELECT id FROM jobs
        WHERE status = 'queued' AND queue = :queue AND sends > 0
            AND send_after > now() - CAST(:recent AS interval)
            AND send_after < now() - CAST(:recent AS interval) / 2
        ORDER BY send_after LIMIT :room FOR UPDATE SKIP LOCKED
    )
    """)

# Finds jobs that must be sent and that the quick scans may have missed, because the jobs became due
# long ago. ``unclaimed`` and ``passed_over`` mean the same as in ``_FIND_RECENTLY_DUE``. The
# recursive query looks up each owner once in the index, so its time doesn't depend on the number of
# jobs per owner.
_FIND_OVERLOOKED = text("""
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
            OFFSET :max_sent - 1
        )
    )
    SELECT id FROM unclaimed UNION ALL SELECT id FROM passed_over LIMIT :room
    """)


def resend_unclaimed_jobs(resources: Resources, queue: Queue, *, full_scan: bool = True) -> int:
    """Send only jobs that became due recently if ``full_scan`` is false."""
    waiting = resources.broker.count_waiting(queue)
    if waiting is None:
        return 0
    room = RESEND_BELOW_MESSAGES - waiting
    with resources.unit_of_work() as uow:
        if not uow.session.scalar(_LOCK_QUEUE, {"queue": queue}):
            return 0
        values = {"queue": queue, "room": room, "recent": RECENT_WINDOW}
        if room <= 0:
            uow.session.execute(_POSTPONE_RESENDS, values | {"room": RESEND_BELOW_MESSAGES})
            return 0
        turns = {"in_turn": MAX_SENDS_IN_TURN, "max_sent": MAX_SENT_JOBS_OF_AN_OWNER}
        jobs = _mark_as_sent(uow, _FIND_RECENTLY_DUE, values | turns)
        if full_scan and len(jobs) < room:
            jobs += _mark_as_sent(
                uow, _FIND_OVERLOOKED, values | turns | {"room": room - len(jobs)}
            )
    return sum(send_job(resources.broker, job) for job in jobs)


def _mark_as_sent(uow: UnitOfWork, query: TextClause, values: dict[str, Any]) -> list[Job]:
    job_ids = list(uow.session.scalars(query, values))
    if not job_ids:
        return []
    # The delay before a job's message is sent again doubles each time, because more messages don't
    # help while all workers are busy.
    delay = build_pause(_RESEND_DELAYS, Job.sends + 1)
    statement = (
        update(Job)
        .where(Job.id.in_(job_ids))
        .values(send_after=func.now() + delay, sends=Job.sends + 1)
        .returning(Job)
    )
    return list(uow.session.scalars(statement))
