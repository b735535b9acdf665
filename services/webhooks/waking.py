"""Starts the job of each endpoint that has something to send.

Workers of the webhook queue look for such endpoints each second, other workers less often. An
endpoint has one job, which ends when nothing is left to send and is started again later. A million
events are therefore one row in ``jobs``, and announcing an event never waits for an endpoint.
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
# An event is visible when its transaction commits. Events of longer transactions are found when the
# waker looks at the endpoints of all owners.
_RECENT_SECONDS = 60.0


class EndpointWaker:
    """Starts the jobs of endpoints that have something to send. Each worker process has one.

    Each second, the waker looks at the endpoints of owners with recent events. Now and then, it
    looks at the endpoints of all owners.
    """

    def __init__(self) -> None:
        # The times of the last looks, each with the id of the newest event at that time.
        self._looks: deque[tuple[float, int]] = deque()
        self._full_pace = ScanPace()

    def wake_due(self, resources: Resources) -> int:
        """Start the jobs of endpoints that are due, and return the number of jobs."""
        [(newest,)] = resources.database.rows(_NEWEST)
        now = time.monotonic()
        self._looks.append((now, newest))
        while len(self._looks) > 1 and self._looks[1][0] < now - _RECENT_SECONDS:
            self._looks.popleft()
        since = self._looks[0][1]
        is_full = self._full_pace.is_due
        began = time.monotonic()
        rows = resources.database.rows(DUE, since=since, whole=is_full, most=_MAX_STARTED)
        if is_full:
            self._full_pace.record_scan(time.monotonic() - began, has_results=False)
        return sum(_start_job(resources, endpoint_id) for (endpoint_id,) in rows)


_NEWEST = Statement("SELECT coalesce(max(id), 0) FROM feed_events")

# A job fails only because of an internal error, so a failed job pauses before its next start.
DUE = Statement("""
    WITH owners AS MATERIALIZED (
        SELECT DISTINCT user_id FROM feed_events WHERE id > :since
    ), candidates AS MATERIALIZED (
        SELECT endpoint.id, endpoint.job_id FROM webhook_endpoints AS endpoint
        WHERE endpoint.state = 'active' AND (
            endpoint.due_at <= now()
            OR NOT endpoint.is_held
            AND (CAST(:whole AS boolean) OR endpoint.user_id IN (SELECT user_id FROM owners))
            AND EXISTS (
                SELECT FROM unnest(endpoint.types) AS wanted(type)
                CROSS JOIN LATERAL (
                    SELECT FROM feed_events AS event
                    WHERE event.user_id = endpoint.user_id AND event.type = wanted.type
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
    LIMIT :most
    """)


def _start_job(resources: Resources, endpoint_id: int) -> bool:
    """Start the endpoint's job. Return whether this process started it."""
    with resources.unit_of_work() as uow:
        is_active = WebhookEndpoint.state == EndpointState.ACTIVE
        query = select(WebhookEndpoint).where(WebhookEndpoint.id == endpoint_id, is_active)
        # A worker that looks at the same time has locked the endpoint.
        endpoint = uow.session.scalar(query.with_for_update(skip_locked=True))
        if endpoint is None:
            return False
        job = None if endpoint.job_id is None else uow.session.get(Job, endpoint.job_id)
        if job is not None and job.status not in FINISHED:
            return False
        if job is not None and job.created_at > clock.now() - _JOB_LIFETIME:
            return restart_job(uow, Job.id == job.id, Job.status.in_(FINISHED)) is not None
        new_job = enqueue_job(
            uow, SEND_EVENTS, user_id=None, on_behalf_of=endpoint.user_id, subject_id=endpoint.id
        )
        endpoint.job_id = new_job.id
        return True
