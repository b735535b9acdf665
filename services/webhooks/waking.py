"""Starts the job of each endpoint that has something to send."""

import time
from collections import deque
from datetime import timedelta

from sqlalchemy import func, select

from core import clock
from models import FINISHED, EndpointState, Job, WebhookEndpoint
from services.jobs import outbox
from services.jobs.lease import WORKS, requeue
from services.jobs.sweep import Pace
from services.webhooks.sending import SEND_EVENTS
from storage.database import Statement
from storage.resources import Resources

# The workers of the queue look each second, the others now and then. An endpoint has one job, which
# ends when nothing is left to send and is started again when there is. A million events are
# therefore one row in ``jobs``, and no announcement of an event waits for an endpoint.

_JOB_LASTS = timedelta(days=1)
_MAX_WOKEN = 200
# An event is seen when its transaction commits. A whole look finds the events of longer
# transactions.
_RECENT_SECONDS = 60.0


class EndpointWaker:
    """Starts the jobs of endpoints that have something to send; one for each process that looks.

    It looks at the endpoints of owners who had events of late each second, and at all at a pace.
    """

    def __init__(self) -> None:
        # When it looked, and the newest event of then.
        self._newest: deque[tuple[float, int]] = deque()
        self._whole = Pace()

    def wake_due(self, resources: Resources) -> int:
        """Start what is due; returns the number of jobs."""
        [(newest,)] = resources.database.rows(_NEWEST)
        now = time.monotonic()
        self._newest.append((now, newest))
        while len(self._newest) > 1 and self._newest[1][0] < now - _RECENT_SECONDS:
            self._newest.popleft()
        since, began = self._newest[0][1], time.monotonic()
        is_whole = self._whole.is_due
        found = resources.database.rows(DUE, since=since, whole=is_whole, most=_MAX_WOKEN)
        if is_whole:
            self._whole.looked(time.monotonic() - began, found=False)
        return sum(_start(resources, endpoint_id) for (endpoint_id,) in found)


_NEWEST = Statement("SELECT coalesce(max(id), 0) FROM feed_events")

# A job that failed is a fault of ours or of the database's: it rests before it is started again.
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


def _start(resources: Resources, endpoint_id: int) -> bool:
    with resources.unit_of_work() as uow:
        is_active = WebhookEndpoint.state == EndpointState.ACTIVE
        query = select(WebhookEndpoint).where(WebhookEndpoint.id == endpoint_id, is_active)
        # Another worker that looked at the same time has it.
        endpoint = uow.session.scalar(query.with_for_update(skip_locked=True))
        if endpoint is None:
            return False
        job = None if endpoint.job_id is None else uow.session.get(Job, endpoint.job_id)
        if job is not None and job.status not in FINISHED:
            return False
        if job is not None and job.created_at > clock.now() - _JOB_LASTS:
            afresh = {"cancel_requested": False, "crashes": 0, "run_at": func.now(), **WORKS}
            return requeue(uow, Job.id == job.id, Job.status.in_(FINISHED), **afresh) is not None
        started = outbox.enqueue(
            uow, SEND_EVENTS, user_id=None, on_behalf_of=endpoint.user_id, subject_id=endpoint.id
        )
        endpoint.job_id = started.id
        return True
