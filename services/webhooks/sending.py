"""The job of an endpoint: it sends what is due, one delivery after the other.

Calls are made between two transactions. The first one claims the next tries (``claiming``). The
second one writes the answers, and is the first one of the next calls. All writes check the job's
attempt: a worker that lost its lease writes nothing.

A single delivery is claimed at first. While the receiver takes all that was claimed, up to four
times as many are claimed the next time, if they fit a part of a second: transactions take longer
than such calls.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import timedelta

from sqlalchemy import func, select

from core import clock
from core.queues import Queue
from core.scopes import Scope
from integrations.receivers import Outcome, ReceiverClient, SignedPost
from models import FINISHED, EndpointState, Job, JobStatus, WebhookEndpoint
from services.jobs.kinds import JobKind, register_kind
from services.jobs.lease import Lease
from services.jobs.outbox import enqueue_job
from services.jobs.scan_paces import ScanPace
from services.jobs.transitions import (
    complete_job,
    hand_back_job,
    record_progress,
    restart_job,
)
from services.webhooks import claiming, signing
from services.webhooks.claiming import Message
from storage.database import Statement
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

SEND_EVENTS = register_kind(
    JobKind(
        "webhook.send",
        queue=Queue.WEBHOOKS,
        scope=Scope.WEBHOOK,
        retryable=False,
        run=lambda resources, lease: run(resources, lease, resources.shared(_receivers)),
    )
)
# Then other endpoints have a turn.
MAX_TURN_SECONDS = 5.0
# This many of an owner's endpoints are called at once: however many hang, others have threads left.
MAX_AT_ONCE_OF_AN_OWNER = 2
# A worker that is killed leaves no more deliveries that came, and come once more.
MAX_CLAIMED = 20
# The claimed deliveries are given back then: names and addresses were looked up, and the endpoint
# was as its owner wanted it, no longer ago.
MAX_CLAIM_SECONDS = 1.0
_PUT_OFF = timedelta(seconds=2)


def _receivers(resources: Resources) -> ReceiverClient:
    return ReceiverClient(resources.settings.webhook_networks)


def run(resources: Resources, lease: Lease, receivers: ReceiverClient) -> None:
    ends_at = time.monotonic() + MAX_TURN_SECONDS
    sent, most = 0, 1
    messages: list[Message] = []
    tries: list[Outcome] = []
    while True:
        with resources.unit_of_work() as uow:
            # Before the endpoint is locked, as every transaction does.
            record_progress(uow, lease, done=sent)
            query = select(WebhookEndpoint).where(WebhookEndpoint.id == lease.subject_id)
            endpoint = uow.session.scalar(query.with_for_update())
            if endpoint is not None and messages:
                made = dict(zip((each.delivery.id for each in messages), tries, strict=False))
                claiming.write(uow, endpoint, messages[0].url, made)
                claiming.give_back(uow, messages[len(tries) :])
                lease.is_retried |= not all(each.is_success for each in tries)
            if time.monotonic() > ends_at:
                hand_back_job(uow, lease)
                return
            messages = _next_messages(uow, lease, endpoint, most)
            if not messages:
                complete_job(uow, lease, {"sent": sent})
                return
        began = time.monotonic()
        tries = receivers.post_each(messages[0].url, _posts(messages))
        sent += len(tries)
        most = 1
        if tries[-1].is_success:
            # Half the time of a claim is for these.
            fit = int(len(tries) * MAX_CLAIM_SECONDS / 2 / (time.monotonic() - began))
            most = max(1, min(fit, 4 * len(tries), MAX_CLAIMED))


def _posts(messages: Iterable[Message]) -> Iterator[SignedPost]:
    """Signed as they go out, for a second."""
    ends_at = time.monotonic() + MAX_CLAIM_SECONDS
    for each in messages:
        headers = signing.signed_headers(each.secrets, each.id, clock.now(), each.body)
        headers |= {"Content-Type": "application/json", "User-Agent": "Pressroom-Webhooks/1"}
        yield SignedPost(each.body, headers)
        if time.monotonic() > ends_at:
            return


def _next_messages(
    uow: UnitOfWork, lease: Lease, endpoint: WebhookEndpoint | None, most: int
) -> list[Message]:
    """The next tries, counted; none: there is nothing to send now."""
    if endpoint is None or endpoint.state != EndpointState.ACTIVE:
        return []
    until = endpoint.rests_until
    if until is not None and until > uow.session.scalars(select(func.now())).one():
        endpoint.due_at, endpoint.is_held = endpoint.rests_until, True
        return []
    running = Job.status == JobStatus.RUNNING, Job.queue == Queue.WEBHOOKS
    before = Job.on_behalf_of == endpoint.user_id, Job.id < lease.job_id
    at_once = uow.session.scalar(select(func.count()).where(*running, *before)) or 0
    if at_once >= MAX_AT_ONCE_OF_AN_OWNER:
        endpoint.due_at, endpoint.is_held = func.now() + _PUT_OFF, True
        return []
    return claiming.claim(uow, endpoint, most=most)


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
        self._whole = ScanPace()

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
            self._whole.record_scan(time.monotonic() - began, has_results=False)
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
            return restart_job(uow, Job.id == job.id, Job.status.in_(FINISHED)) is not None
        started = enqueue_job(
            uow, SEND_EVENTS, user_id=None, on_behalf_of=endpoint.user_id, subject_id=endpoint.id
        )
        endpoint.job_id = started.id
        return True
