"""Records the outcomes of webhook delivery attempts.

A call to an unresponsive receiver blocks a thread that other owners' endpoints need. After two
consecutive unanswered calls, an endpoint rests: it receives no events for at least 30 seconds. Each
additional unanswered call doubles the pause, up to five minutes, so that one process can handle
more than a hundred such endpoints.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from http import HTTPStatus

from sqlalchemy import func, select, text

from core.logging import get_logger
from core.pauses import Pauses
from integrations.http_client import parse_retry_after
from integrations.receivers.client import Outcome
from models import DeliveryStatus, EndpointState, WebhookDelivery, WebhookEndpoint
from services.accounts import account_mails, accounts
from services.accounts.account_mails import MailKind
from services.webhooks.claims import PAUSES
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

# A failed webhook delivery is retried for this time. An endpoint is paused if none of its
# deliveries has succeeded for this time.
RETRY_PERIOD = timedelta(days=3)
# The longest pause that a receiver can request with ``Retry-After``. All pauses in the normal retry
# schedule are shorter than ``MAX_RETRY_AFTER``.
MAX_RETRY_AFTER = timedelta(hours=12)
# A failed call counts as unanswered if it took at least this long.
MIN_SILENT_DURATION = timedelta(seconds=5)
MAX_REST = timedelta(minutes=5)
RESTS = Pauses.double(timedelta(seconds=30), MAX_REST)
FAILED_FOR_DAYS = "Deliveries failed for three days."
ANSWERED_GONE = "The server responded with 410 Gone."

# Records all successes of a batch in one statement, because most attempts succeed.
_RECORD_SUCCESSES = text("""
    UPDATE webhook_deliveries AS d
    SET status = 'delivered', delivered_at = now(), error = NULL,
        status_code = attempts.code, milliseconds = attempts.milliseconds, answer = attempts.answer
    FROM unnest(
        CAST(:ids AS bigint[]), CAST(:codes AS integer[]), CAST(:milliseconds AS integer[]),
        CAST(:answers AS bytea[])
    ) AS attempts (id, code, milliseconds, answer)
    WHERE d.id = attempts.id
""")
# Deletes the responses that webhook receivers sent to events about erased people. The job that
# erases a person also deletes the responses to events about this person, but a worker may store
# another response after the job has ended.
_DELETE_RESPONSES_ABOUT_ERASED_PEOPLE = text("""
    UPDATE webhook_deliveries AS d SET answer = NULL
    WHERE d.id = ANY (CAST(:ids AS bigint[])) AND d.answer IS NOT NULL
        AND EXISTS (SELECT FROM users WHERE id = d.person_id AND erased_at IS NOT NULL)
""")


def record_outcomes(
    uow: UnitOfWork, endpoint: WebhookEndpoint, url: str, outcomes: Mapping[int, Outcome]
) -> None:
    """Record the outcomes of deliveries to a locked endpoint, in the order of the attempts.

    If the owner has replaced ``url``, the count of unanswered calls stays unchanged. Only the last
    outcome may be a failure, because a batch ends at the first failure.
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
        # The delivery may have been deleted during the call, because its retention period ended.
        if delivery is not None:
            _record_failure(uow, endpoint, delivery, outcomes[delivery_id], url)
    uow.session.execute(_DELETE_RESPONSES_ABOUT_ERASED_PEOPLE, {"ids": list(outcomes)})


def _count_silences(
    uow: UnitOfWork, endpoint: WebhookEndpoint, outcomes: Mapping[int, Outcome]
) -> None:
    for outcome in outcomes.values():
        duration = timedelta(milliseconds=outcome.milliseconds)
        is_silence = outcome.status is None and duration >= MIN_SILENT_DURATION
        endpoint.silences = endpoint.silences + 1 if is_silence else 0
    rest = choose_rest(endpoint.silences)
    endpoint.rests_until = None if rest is None else _get_transaction_time(uow) + rest


def choose_rest(silences: int) -> timedelta | None:
    return RESTS.choose(silences - 1) if silences > 1 else None


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
    # An endpoint is permanently disabled if its receiver answers 410, unless the owner has changed
    # the URL since the call.
    if outcome.status == HTTPStatus.GONE and url == endpoint.url:
        delivery.status = DeliveryStatus.FAILED
        _stop_endpoint(uow, endpoint, EndpointState.ENDED, ANSWERED_GONE)
        return
    now = _get_transaction_time(uow)
    # ``failing_since`` is the time of the first failed attempt after the endpoint's last success.
    # ``failing_since`` is not the time when the failed delivery was queued, because other
    # deliveries may have succeeded since that time. If an event is sent as soon as it is queued,
    # its first and last attempt are three days apart. If an endpoint has a single event and all
    # attempts to deliver the event fail, the endpoint is paused after the last attempt.
    failing_since = endpoint.failing_since or delivery.last_attempt_at or now
    fails_for_days = now >= failing_since + RETRY_PERIOD
    is_given_up = now >= delivery.queued_at + RETRY_PERIOD
    if is_given_up:
        delivery.status = DeliveryStatus.FAILED
    else:
        delivery.due_at = _choose_retry_time(delivery, outcome, now)
    # If an endpoint's only pending delivery is abandoned, the endpoint no longer counts as failing.
    is_over = is_given_up and not fails_for_days and not _has_other_pending(uow, delivery)
    endpoint.failing_since = None if is_over else failing_since
    if fails_for_days:
        _stop_endpoint(uow, endpoint, EndpointState.PAUSED, FAILED_FOR_DAYS)


def _choose_retry_time(delivery: WebhookDelivery, outcome: Outcome, now: datetime) -> datetime:
    """Respect the header ``Retry-After``.

    The last attempt takes place three days after the delivery was queued.
    """
    seconds = parse_retry_after(outcome.retry_after, max_seconds=MAX_RETRY_AFTER.total_seconds())
    due_at = delivery.due_at
    if seconds is not None:
        # A receiver can't request a shorter pause than the first pause of the normal retry
        # schedule.
        due_at = now + max(timedelta(seconds=seconds), PAUSES.steps[0])
    return min(due_at, delivery.queued_at + RETRY_PERIOD)


def _has_other_pending(uow: UnitOfWork, delivery: WebhookDelivery) -> bool:
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
    """Notify the owner by mail."""
    if endpoint.state != EndpointState.ACTIVE:
        return
    endpoint.state = state
    endpoint.reason = reason
    endpoint.due_at = None
    log.info("webhook.stopped", endpoint_id=endpoint.id, state=state)
    person = accounts.get_owner(uow, endpoint.user_id)
    change = "was paused" if state == EndpointState.PAUSED else "was permanently disabled"
    detail = f"{endpoint.id} {change}. {reason}"
    account_mails.enqueue_mail(uow, MailKind.WEBHOOK_STOPPED, person, detail)


def _get_transaction_time(uow: UnitOfWork) -> datetime:
    return uow.session.scalars(select(func.now())).one()
