"""Makes every worker search for lost and unclaimed jobs each second.

A queued job is sent again if no worker has claimed it in time, so a job runs even if the broker
loses its message. All workers can sweep at the same time, because the statements lock rows with
``SKIP LOCKED``.
"""

import time

from core.queues import Queue
from services.jobs.lost_jobs import DatabaseWatch, requeue_lost_jobs
from services.jobs.outbox import RECENT_WINDOW
from services.jobs.scan_paces import SweepPaces
from services.jobs.unclaimed_jobs import resend_unclaimed_jobs
from storage.database import Statement
from storage.resources import Resources

# Returns a row for each queue. The third column of the result says whether a job in the queue
# became due recently. In a full scan, the fourth column says whether any job in the queue is
# queued. The last column is the time in seconds since the statement started. Lateral joins make
# Postgres scan the queues in the order of the array ``queues``.
_CHECK_QUEUES = Statement("""
    SELECT queue, is_full_scan, coalesce(sent.is_due, unsent.is_due) IS NOT NULL,
        queued.is_queued IS NOT NULL,
        CAST(extract(epoch FROM clock_timestamp() - statement_timestamp()) AS float)
    FROM unnest(CAST(:queues AS text[]), CAST(:full_scans AS boolean[]))
        AS queues(queue, is_full_scan)
    LEFT JOIN LATERAL (
        SELECT 1 AS is_due FROM jobs
        WHERE status = 'queued' AND jobs.queue = queues.queue AND sends > 0
            AND send_after > now() - CAST(:recent AS interval) AND send_after < now()
        LIMIT 1
    ) AS sent ON true
    LEFT JOIN LATERAL (
        SELECT 1 AS is_due FROM jobs
        WHERE status = 'queued' AND jobs.queue = queues.queue AND sends = 0
            AND send_after > now() - CAST(:recent AS interval) AND send_after < now()
        LIMIT 1
    ) AS unsent ON true
    LEFT JOIN LATERAL (
        SELECT 1 AS is_queued FROM jobs
        WHERE status = 'queued' AND jobs.queue = queues.queue AND queues.is_full_scan
        LIMIT 1
    ) AS queued ON true
    """)


def sweep_jobs(
    resources: Resources, watch: DatabaseWatch | None = None, paces: SweepPaces | None = None
) -> int:
    """Return how many jobs were changed or sent again."""
    paces = paces or SweepPaces()
    swept = requeue_lost_jobs(resources, watch or DatabaseWatch(), paces.lost)
    due_queues = paces.due_queues()
    # If this statement finds no due job, the sweep runs no further statements about queued jobs, so
    # that the sweep stays fast.
    rows = resources.database.rows(
        _CHECK_QUEUES,
        queues=list(Queue),
        full_scans=[queue in due_queues for queue in Queue],
        recent=RECENT_WINDOW,
    )
    scanned_seconds = 0.0
    for name, is_full_scan, has_recent, has_any, seconds_since_start in rows:
        sent = 0
        began_at = time.monotonic()
        if has_recent or has_any:
            sent = resend_unclaimed_jobs(resources, Queue(name), full_scan=has_any)
            swept += sent
        if is_full_scan:
            resend_seconds = time.monotonic() - began_at
            seconds = seconds_since_start - scanned_seconds + resend_seconds
            paces.queues[Queue(name)].record_scan(seconds, has_results=sent > 0)
        scanned_seconds = seconds_since_start
    return swept
