"""The sweep: each second, every worker looks for jobs that no worker is working on.

The sweep makes the broker dispensable. It sends a queued job again that was not claimed in time. It
requeues a running job whose lease expired, or fails the job after three crashes. Rows are locked
with ``SKIP LOCKED``, so all workers can sweep at the same time and one of them handles each row.
"""

import time

from core.queues import Queue
from services.jobs.lost_jobs import DatabaseWatch, requeue_lost_jobs
from services.jobs.outbox import RECENT
from services.jobs.scan_paces import SweepPaces
from services.jobs.unclaimed_jobs import resend_unclaimed_jobs
from storage.database import Statement
from storage.resources import Resources

# Returns for each queue: whether a job became due recently, whether any job is queued (only for
# queues with a full scan), and the seconds since the statement began. The joins keep the order in
# which the queues are scanned.
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


def sweep_jobs(
    resources: Resources, watch: DatabaseWatch | None = None, paces: SweepPaces | None = None
) -> int:
    """Sweep once; return the number of jobs that were requeued or sent again."""
    paces = paces or SweepPaces()
    swept = requeue_lost_jobs(resources, watch or DatabaseWatch(), paces.lost)
    due_queues = paces.due_queues()
    # Every worker runs this each second. If no job is due, this small statement is all it runs.
    rows = resources.database.rows(
        _QUEUES,
        queues=list(Queue),
        whole=[queue in due_queues for queue in Queue],
        recent=RECENT,
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
