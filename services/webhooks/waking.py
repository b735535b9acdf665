"""Starts the jobs that send events to webhook endpoints with due deliveries or new events.

Workers of the webhook queue look for due endpoints every second, and other workers less often. Each
endpoint has a single job, so that a million events don't add a million rows to ``jobs``. The job
ends when no delivery is due and restarts when one becomes due. Transactions that write events never
wait for webhook endpoints.
"""

import time
from collections import deque
from datetime import timedelta

from sqlalchemy import select

from core import clock
from models import FINISHED, EndpointState, Job, WebhookEndpoint
from services.jobs.outbox import enqueue_job
from services.jobs.scan_paces import ScanPace
from services.jobs.transitions import restart_job
from services.webhooks.sending import SEND_EVENTS
from storage.database import Statement
from storage.resources import Resources

_JOB_LIFETIME = timedelta(days=1)
_MAX_STARTED = 200
# If a transaction takes longer than this to write its events, the quick scan misses them. A full
# scan finds the missed events later.
_RECENT_SECONDS = 60.0


class EndpointWaker:
    """A quick scan checks owners with recent events, and a less frequent one all owners."""

    def __init__(self) -> None:
        # The times of recent scans, each with the id of the newest event at that time.
        self._scans: deque[tuple[float, int]] = deque()
        self._full_pace = ScanPace()

    def wake_due(self, resources: Resources) -> int:
        [(newest,)] = resources.database.rows(_FIND_NEWEST_EVENT)
        now = time.monotonic()
        self._scans.append((now, newest))
        while len(self._scans) > 1 and self._scans[1][0] < now - _RECENT_SECONDS:
            self._scans.popleft()
        since = self._scans[0][1]
        is_full_scan = self._full_pace.is_due
        began_at = time.monotonic()
        rows = resources.database.rows(
            FIND_DUE_ENDPOINTS, since=since, full_scan=is_full_scan, max_started=_MAX_STARTED
        )
        if is_full_scan:
            self._full_pace.record_scan(time.monotonic() - began_at, has_results=False)
        return sum(_start_job(resources, endpoint_id) for (endpoint_id,) in rows)


_FIND_NEWEST_EVENT = Statement("SELECT coalesce(max(id), 0) FROM feed_events")

# Finds endpoints with due deliveries or new events but without a running job. A failed job of an
# endpoint is restarted after a minute, because only an internal error makes it fail.
FIND_DUE_ENDPOINTS = Statement("""
    WITH owners AS MATERIALIZED (
        SELECT DISTINCT user_id FROM feed_events WHERE id > :since
    ), candidates AS MATERIALIZED (
        SELECT endpoint.id, endpoint.job_id FROM webhook_endpoints AS endpoint
        WHERE endpoint.state = 'active' AND (
            endpoint.due_at <= now()
            OR NOT endpoint.is_held
            AND (CAST(:full_scan AS boolean) OR endpoint.user_id IN (SELECT user_id FROM owners))
            AND EXISTS (
                SELECT FROM unnest(endpoint.types) AS endpoint_type(type)
                CROSS JOIN LATERAL (
                    SELECT FROM feed_events AS event
                    WHERE event.user_id = endpoint.user_id AND event.type = endpoint_type.type
                        AND (event.place, event.id) > (endpoint.place, endpoint.event_id)
                    LIMIT 1
                ) AS next_event
            )
        )
    )
    SELECT candidates.id FROM candidates LEFT JOIN jobs ON jobs.id = candidates.job_id
    WHERE jobs.id IS NULL OR jobs.status = 'succeeded'
        OR jobs.status IN ('failed', 'cancelled')
        AND jobs.finished_at < now() - interval '1 minute'
    ORDER BY candidates.id
    LIMIT :max_started
    """)


def _start_job(resources: Resources, endpoint_id: int) -> bool:
    """Return false if the job is already queued or running."""
    with resources.unit_of_work() as uow:
        is_active = WebhookEndpoint.state == EndpointState.ACTIVE
        query = select(WebhookEndpoint).where(WebhookEndpoint.id == endpoint_id, is_active)
        # Skip an endpoint that another worker has locked to start its job.
        endpoint = uow.session.scalar(query.with_for_update(skip_locked=True))
        if endpoint is None:
            return False
        job = None if endpoint.job_id is None else uow.session.get(Job, endpoint.job_id)
        if job is not None and job.status not in FINISHED:
            return False
        if job is not None and job.created_at > clock.now() - _JOB_LIFETIME:
            return restart_job(uow, Job.id == job.id, Job.status.in_(FINISHED)) is not None
        new_job = enqueue_job(
            uow, SEND_EVENTS, account_id=None, on_behalf_of=endpoint.user_id, subject_id=endpoint.id
        )
        endpoint.job_id = new_job.id
        return True
