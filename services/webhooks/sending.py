"""The job of an endpoint: it sends what is due, one delivery after the other.

Calls are made between two transactions. The first one claims the next tries (``claims``). The
second one writes the answers, and is the first one of the next calls. All writes check the job's
attempt: a worker that lost its lease writes nothing.

A single delivery is claimed at first. While the receiver takes all that was claimed, up to four
times as many are claimed the next time, if they fit a part of a second: transactions take longer
than such calls.
"""

import time
from collections.abc import Iterable, Iterator
from datetime import timedelta

from sqlalchemy import func, select

from core import clock
from core.queues import Queue
from core.scopes import Scope
from integrations.receivers import Outcome, ReceiverClient, SignedPost
from models import EndpointState, Job, JobStatus, WebhookEndpoint
from services.jobs import kinds
from services.jobs import lease as leases
from services.jobs.kinds import JobKind
from services.jobs.lease import Lease
from services.webhooks import claims, outcomes, signing
from services.webhooks.claims import Message
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

SEND_EVENTS = kinds.register(
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
            leases.progress(uow, lease, done=sent)
            query = select(WebhookEndpoint).where(WebhookEndpoint.id == lease.subject_id)
            endpoint = uow.session.scalar(query.with_for_update())
            if endpoint is not None and messages:
                made = dict(zip((each.delivery.id for each in messages), tries, strict=False))
                outcomes.write(uow, endpoint, messages[0].url, made)
                claims.give_back(uow, messages[len(tries) :])
                lease.is_retried |= not all(each.is_success for each in tries)
            if time.monotonic() > ends_at:
                leases.hand_back(uow, lease)
                return
            messages = _next_messages(uow, lease, endpoint, most)
            if not messages:
                leases.succeed(uow, lease, {"sent": sent})
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
    return claims.claim(uow, endpoint, most=most)
