"""Runs the job that sends the due deliveries to a webhook endpoint.

The job alternates between database transactions and calls to the receiver. Each transaction records
the outcomes of the previous calls, and then claims the deliveries to send next. It checks the job's
lease, so that a worker that has lost its lease writes nothing.

Deliveries are claimed in batches, because a transaction for each delivery would take longer than
the call to a fast receiver. After a successful batch, the next batch contains as many deliveries as
the receiver can probably take in ``MAX_CLAIM_SECONDS``. The first batch, and the batch after a
failed call, contain one delivery. If a worker is killed before it records the outcomes of a batch,
the whole batch is sent again.
"""

import time
from collections.abc import Iterable, Iterator
from datetime import timedelta

from sqlalchemy import bindparam, func, select, text

from core import clock
from core.queues import Queue
from core.scopes import Scope
from integrations.receivers.client import Outcome, ReceiverClient, SignedPost
from models import EndpointState, WebhookEndpoint
from services.jobs.kinds import JobKind, register_kind
from services.jobs.lease import Lease
from services.jobs.transitions import complete_job, hand_back_job, record_progress
from services.webhooks import claims, outcomes, signing
from services.webhooks.claims import Message
from services.webhooks.messages import FIXED_HEADERS
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# A job that has sent deliveries to an endpoint for this number of seconds returns to the end of the
# queue, so that the jobs of other endpoints can run.
MAX_TURN_SECONDS = 5.0
# The maximum number of an owner's endpoints to which workers send events at the same time. Without
# this limit, one owner's unresponsive endpoints could block all threads of a worker.
MAX_ACTIVE_ENDPOINTS_PER_OWNER = 2
MAX_BATCH_DELIVERIES = 100
# The maximum time between claiming and sending a delivery. The worker releases claimed deliveries
# that were not sent within ``MAX_CLAIM_SECONDS``. The time between claim and sending is limited,
# because the endpoint's settings or the names and addresses in the events may change in the
# meantime.
MAX_CLAIM_SECONDS = 1.0
# If too many of an owner's endpoints are sending events, the job of a further endpoint waits this
# long before it checks again.
_OWNER_LIMIT_PAUSE = timedelta(seconds=2)
_LOCK_ENDPOINT = (
    select(WebhookEndpoint).where(WebhookEndpoint.id == bindparam("id")).with_for_update()
)
_COUNT_EARLIER_JOBS = text("""
    SELECT count(*) FROM jobs
    WHERE status = 'running' AND queue = 'webhooks' AND on_behalf_of = :owner_id AND id < :job_id
""")

SEND_EVENTS = register_kind(
    JobKind(
        "webhook.send",
        queue=Queue.WEBHOOKS,
        scope=Scope.WEBHOOK,
        permissions=None,
        retryable=False,
        run=lambda resources, lease: send_due_deliveries(
            resources, lease, resources.shared(_open_client)
        ),
    )
)


def _open_client(resources: Resources) -> ReceiverClient:
    return ReceiverClient(resources.settings.webhook_networks)


def send_due_deliveries(resources: Resources, lease: Lease, receivers: ReceiverClient) -> None:
    """Send the endpoint's due deliveries, for at most ``MAX_TURN_SECONDS``."""
    ends_at = time.monotonic() + MAX_TURN_SECONDS
    sent = 0
    batch_size = 1
    messages: list[Message] = []
    results: list[Outcome] = []
    while True:
        with resources.unit_of_work() as uow:
            # To prevent deadlocks, every transaction locks the job before the endpoint.
            record_progress(uow, lease, done=sent)
            endpoint = uow.session.scalar(_LOCK_ENDPOINT, {"id": lease.subject_id})
            if endpoint is not None and messages:
                ids = [message.delivery.id for message in messages]
                by_delivery = dict(zip(ids, results, strict=False))
                outcomes.record_outcomes(uow, endpoint, messages[0].url, by_delivery)
                claims.release_claims(uow, messages[len(results) :])
                lease.is_retried |= not all(result.is_success for result in results)
            if time.monotonic() > ends_at:
                hand_back_job(uow, lease)
                return
            messages = _claim_batch(uow, lease, endpoint, batch_size)
            if not messages:
                complete_job(uow, lease, {"sent": sent})
                return
        started_at = time.monotonic()
        results = receivers.post_each(messages[0].url, _sign_posts(messages))
        seconds = time.monotonic() - started_at
        sent += len(results)
        # Optimization: batches of webhook deliveries (decision 17).
        batch_size = choose_batch_size(len(results), seconds) if results[-1].is_success else 1


def choose_batch_size(sent: int, seconds: float) -> int:
    """Return how many deliveries the worker can probably send in ``MAX_CLAIM_SECONDS``.

    The worker sent ``sent`` deliveries in the last ``seconds``.
    """
    size = int(sent * MAX_CLAIM_SECONDS / max(seconds, 0.001))
    return max(1, min(size, MAX_BATCH_DELIVERIES))


def _claim_batch(
    uow: UnitOfWork, lease: Lease, endpoint: WebhookEndpoint | None, batch_size: int
) -> list[Message]:
    """Claim nothing if nothing may be sent to the endpoint now."""
    if endpoint is None or endpoint.state != EndpointState.ACTIVE:
        return []
    rests_until = endpoint.rests_until
    if rests_until is not None and rests_until > uow.session.scalars(select(func.now())).one():
        endpoint.due_at = rests_until
        endpoint.is_held = True
        return []
    if _count_earlier_jobs(uow, lease, endpoint) >= MAX_ACTIVE_ENDPOINTS_PER_OWNER:
        endpoint.due_at = func.now() + _OWNER_LIMIT_PAUSE
        endpoint.is_held = True
        return []
    return claims.claim_deliveries(uow, endpoint, limit=batch_size)


def _count_earlier_jobs(uow: UnitOfWork, lease: Lease, endpoint: WebhookEndpoint) -> int:
    """Count the owner's running webhook jobs with a lower id."""
    parameters = {"owner_id": endpoint.user_id, "job_id": lease.job_id}
    return uow.session.scalar(_COUNT_EARLIER_JOBS, parameters) or 0


def _sign_posts(messages: Iterable[Message]) -> Iterator[SignedPost]:
    """Yield signed requests, and stop after ``MAX_CLAIM_SECONDS``.

    Each request is signed immediately before it is sent, because the signature includes the time.
    """
    ends_at = time.monotonic() + MAX_CLAIM_SECONDS
    for message in messages:
        headers = signing.sign_message(message.secrets, message.id, clock.now(), message.body)
        yield SignedPost(message.body, headers | FIXED_HEADERS)
        if time.monotonic() > ends_at:
            return
