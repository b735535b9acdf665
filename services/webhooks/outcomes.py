"""Records the outcomes of delivery attempts.

A receiver that doesn't answer blocks a thread that other owners need. After two such calls in a row
its endpoint rests, and longer after each further one. The threads of one process then suffice for
more than a hundred of these endpoints.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from http import HTTPStatus

from sqlalchemy import exists, func, select, text, update

from core.logging import get_logger
from integrations.http_client import retry_after
from integrations.receivers.client import Outcome
from models import DeliveryStatus, EndpointState, User, WebhookDelivery, WebhookEndpoint
from services.accounts import account_mails, accounts
from services.accounts.account_mails import MailKind
from services.webhooks.claims import FIRST_PAUSES
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

TRIED_FOR = timedelta(days=3)
# A receiver may ask for a longer pause than any in our own schedule.
MAX_RETRY_AFTER = timedelta(hours=12)
# A call counts as silent if the receiver didn't answer for at least this long.
SILENCE = timedelta(seconds=5)
FIRST_REST = timedelta(seconds=30)
MAX_REST = timedelta(minutes=5)
FAILED_FOR_DAYS = "It failed for three days."
ANSWERED_GONE = "Its receiver answered 410."

# A single statement for all successes, because most attempts succeed and come in batches.
_RECORD_SUCCESSES = text("""
    UPDATE webhook_deliveries AS d
    SET status = 'delivered', delivered_at = now(), error = NULL,
        status_code = made.code, milliseconds = made.milliseconds, answer = made.answer
    FROM unnest(
        CAST(:ids AS bigint[]), CAST(:codes AS integer[]), CAST(:milliseconds AS integer[]),
        CAST(:answers AS bytea[])
    ) AS made (id, code, milliseconds, answer)
    WHERE d.id = made.id
""")


def record_outcomes(
    uow: UnitOfWork, endpoint: WebhookEndpoint, url: str, outcomes: Mapping[int, Outcome]
) -> None:
    """Record the outcomes of attempts. The endpoint is locked.

    ``url``: the URL that was called. The endpoint may have another one by now.
    ``outcomes``: the outcome by the delivery's id, in the order of the attempts. Only the last
    outcome may be a failure.
    """
    if url == endpoint.url:
        _count_silences(uow, endpoint, outcomes)
    successes = {row_id: outcome for row_id, outcome in outcomes.items() if outcome.is_success}
    if successes:
        values = {
            "ids": list(successes),
            "codes": [outcome.status for outcome in successes.values()],
            "milliseconds": [outcome.milliseconds for outcome in successes.values()],
            "answers": [outcome.body or None for outcome in successes.values()],
        }
        uow.session.execute(_RECORD_SUCCESSES, values)
        endpoint.failing_since = None
    for delivery_id in outcomes.keys() - successes:
        delivery = uow.session.get(WebhookDelivery, delivery_id)
        # The delivery is gone if its retention ended in the meantime.
        if delivery is not None:
            _record_failure(uow, endpoint, delivery, outcomes[delivery_id], url)
    # Blank answers about erased persons here, because the erasure may have passed this table.
    table = WebhookDelivery
    is_erased = exists().where(User.id == table.person_id, User.erased_at.is_not(None))
    uow.session.execute(update(table).where(table.id.in_(outcomes), is_erased).values(answer=None))


def _count_silences(
    uow: UnitOfWork, endpoint: WebhookEndpoint, outcomes: Mapping[int, Outcome]
) -> None:
    """Count the silent calls in a row, and let the endpoint rest after the second one."""
    for outcome in outcomes.values():
        duration = timedelta(milliseconds=outcome.milliseconds)
        is_silence = outcome.status is None and duration >= SILENCE
        endpoint.silences = endpoint.silences + 1 if is_silence else 0
    rest = rest_after(endpoint.silences)
    endpoint.rests_until = None if rest is None else _transaction_time(uow) + rest


def rest_after(silences: int) -> timedelta | None:
    """Return how long an endpoint rests after this number of silent calls in a row."""
    return min(FIRST_REST * (1 << min(silences - 2, 10)), MAX_REST) if silences > 1 else None


def _record_failure(
    uow: UnitOfWork,
    endpoint: WebhookEndpoint,
    delivery: WebhookDelivery,
    outcome: Outcome,
    url: str,
) -> None:
    delivery.status_code = outcome.status
    delivery.milliseconds = outcome.milliseconds
    delivery.answer = outcome.body or None
    delivery.error = outcome.error
    # A 410 from a URL that the owner has replaced doesn't end the endpoint.
    if outcome.status == HTTPStatus.GONE and url == endpoint.url:
        delivery.status = DeliveryStatus.FAILED
        _stop_endpoint(uow, endpoint, EndpointState.ENDED, ANSWERED_GONE)
        return
    now = _transaction_time(uow)
    # The endpoint has failed since this attempt, not since the event was queued: other deliveries
    # may have succeeded in between. If an event is sent at once, its first attempt is as old as its
    # place in the queue. The last attempt of such an event then pauses an endpoint that received
    # nothing else in the meantime.
    failing_since = endpoint.failing_since or delivery.last_attempt_at or now
    fails_for_days = now >= failing_since + TRIED_FOR
    is_given_up = now >= delivery.queued_at + TRIED_FOR
    if is_given_up:
        delivery.status = DeliveryStatus.FAILED
    else:
        delivery.due_at = _retry_time(delivery, outcome, now)
    # If no other delivery fails, the time until the next failure doesn't count as failing.
    is_over = is_given_up and not fails_for_days and not _has_other_pending(uow, delivery)
    endpoint.failing_since = None if is_over else failing_since
    if fails_for_days:
        _stop_endpoint(uow, endpoint, EndpointState.PAUSED, FAILED_FOR_DAYS)


def _retry_time(delivery: WebhookDelivery, outcome: Outcome, now: datetime) -> datetime:
    """Return when to retry: as the receiver asks, or as the claim scheduled it.

    The last attempt is made three days after the delivery was queued.
    """
    seconds = retry_after(outcome.retry_after, max_seconds=MAX_RETRY_AFTER.total_seconds())
    due_at = delivery.due_at
    if seconds is not None:
        # A receiver can't ask for calls without a pause.
        due_at = now + max(timedelta(seconds=seconds), FIRST_PAUSES[0])
    return min(due_at, delivery.queued_at + TRIED_FOR)


def _has_other_pending(uow: UnitOfWork, delivery: WebhookDelivery) -> bool:
    """Return whether the endpoint has other pending deliveries."""
    table = WebhookDelivery
    query = select(table.id).where(
        table.endpoint_id == delivery.endpoint_id,
        table.status == DeliveryStatus.PENDING,
        table.id != delivery.id,
    )
    return uow.session.scalar(query.limit(1)) is not None


def _stop_endpoint(
    uow: UnitOfWork, endpoint: WebhookEndpoint, state: EndpointState, reason: str
) -> None:
    """Pause or end an active endpoint, and mail its owner."""
    if endpoint.state != EndpointState.ACTIVE:
        return
    endpoint.state = state
    endpoint.reason = reason
    endpoint.due_at = None
    log.info("webhook.stopped", endpoint_id=endpoint.id, state=state)
    person = accounts.get_user(uow, endpoint.user_id)
    detail = f"{endpoint.id} is {state} now. {reason}"
    account_mails.enqueue_mail_to(uow, MailKind.WEBHOOK_STOPPED, person, detail)


def _transaction_time(uow: UnitOfWork) -> datetime:
    return uow.session.scalars(select(func.now())).one()
