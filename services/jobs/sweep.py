"""The sweep: each second every worker looks for jobs that no worker works on.

It makes the broker dispensable. The sweep sends a queued job again that was not claimed in time. It
queues a running job again whose lease expired, or fails it once it has crashed three workers. Rows
are locked with ``SKIP LOCKED``, so all workers may sweep at once and one handles each row.

Each second it looks at what became due lately, and at all jobs at a pace of their own (``pace``).
"""

import time

from core.queues import Queue
from services.jobs.lost_jobs import Reach, requeue_lost
from services.jobs.outbox import RECENT
from services.jobs.scan_paces import Paces
from services.jobs.unclaimed_jobs import resend_unclaimed
from storage.database import Statement
from storage.resources import Resources

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
