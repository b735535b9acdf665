"""What the answer to a try means: for its delivery, and for the endpoint."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from http import HTTPStatus

from sqlalchemy import func, or_, select, text

from core.logging import get_logger
from integrations.http_client import retry_after
from integrations.receivers.posting import Outcome
from models import DeliveryStatus, EndpointState, User, WebhookDelivery, WebhookEndpoint
from services.people import account_mails, accounts
from services.people.account_mails import MailKind
from services.webhooks import schedule
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

FAILED_FOR_DAYS = "It failed for three days."
ANSWERED_GONE = "Its receiver answered 410."

# One statement, not one for each: most tries succeed, and come many at a time.
_WRITE_TAKEN = text("""
    UPDATE webhook_deliveries AS d
    SET status = 'delivered', delivered_at = now(), error = NULL,
        status_code = made.code, milliseconds = made.milliseconds, answer = made.answer
    FROM unnest(
        CAST(:ids AS bigint[]), CAST(:codes AS integer[]), CAST(:milliseconds AS integer[]),
        CAST(:answers AS bytea[])
    ) AS made (id, code, milliseconds, answer)
    WHERE d.id = made.id
""")


def write(
    uow: UnitOfWork, endpoint: WebhookEndpoint, url: str, made: Mapping[int, Outcome]
) -> None:
    """Write the outcomes of tries, by the delivery's id and in the order in which they were made.

    The endpoint is locked, and they went to this URL. Only the last one may be a failure.
    """
    if url == endpoint.url:
        for outcome in made.values():
            endpoint.silences = endpoint.silences + 1 if _is_silence(outcome) else 0
        rest = schedule.rest_after(endpoint.silences)
        endpoint.rests_until = None if rest is None else _now(uow) + rest
    taken = {each: outcome for each, outcome in made.items() if outcome.is_success}
    if taken:
        _write_taken(uow, taken)
        endpoint.failing_since = None
    for delivery_id in made.keys() - taken:
        delivery = uow.session.get(WebhookDelivery, delivery_id)
        if delivery is not None:  # it was not past its time
            _write_failure(uow, endpoint, delivery, made[delivery_id], url)
    _follow_persons(uow, made)


def _write_taken(uow: UnitOfWork, taken: Mapping[int, Outcome]) -> None:
    outcomes = taken.values()
    uow.session.execute(
        _WRITE_TAKEN,
        {
            "ids": list(taken),
            "codes": [each.status for each in outcomes],
            "milliseconds": [each.milliseconds for each in outcomes],
            "answers": [each.body or None for each in outcomes],
        },
    )


def _now(uow: UnitOfWork) -> datetime:
    return uow.session.scalars(select(func.now())).one()


def _is_silence(outcome: Outcome) -> bool:
    """Whether we waited for an answer that did not come."""
    waited = timedelta(milliseconds=outcome.milliseconds)
    return outcome.status is None and waited >= schedule.SILENCE


def _write_failure(
    uow: UnitOfWork,
    endpoint: WebhookEndpoint,
    delivery: WebhookDelivery,
    outcome: Outcome,
    url: str,
) -> None:
    delivery.status_code, delivery.milliseconds = outcome.status, outcome.milliseconds
    delivery.answer, delivery.error = outcome.body or None, outcome.error
    # A receiver that is gone since its owner named another one ends nothing.
    if outcome.status == HTTPStatus.GONE and url == endpoint.url:
        delivery.status = DeliveryStatus.FAILED
        _stop(uow, endpoint, EndpointState.ENDED, ANSWERED_GONE)
    else:
        _try_again(uow, endpoint, delivery, outcome)


def _try_again(
    uow: UnitOfWork, endpoint: WebhookEndpoint, delivery: WebhookDelivery, outcome: Outcome
) -> None:
    """Try the delivery again or give it up, and pause the endpoint that fails for days."""
    now = _now(uow)
    # Since this try, not since its event was queued: others may have succeeded in between. The
    # first try of an event that finds nothing else to send is as old as its place in the queue, so
    # the last one pauses an endpoint that got nothing else meanwhile.
    failing_since = endpoint.failing_since or delivery.last_attempt_at or now
    fails_for_days = now >= failing_since + schedule.TRIED_FOR
    is_given_up = now >= delivery.queued_at + schedule.TRIED_FOR
    if is_given_up:
        delivery.status = DeliveryStatus.FAILED
    else:
        delivery.due_at = _next_try(delivery, outcome, now)
    # Nothing fails any more: the days without an event before the next one count for nothing.
    is_over = is_given_up and not fails_for_days and not _has_others(uow, delivery)
    endpoint.failing_since = None if is_over else failing_since
    if fails_for_days:
        _stop(uow, endpoint, EndpointState.PAUSED, FAILED_FOR_DAYS)


def _has_others(uow: UnitOfWork, delivery: WebhookDelivery) -> bool:
    """Whether the endpoint has other deliveries that are not done."""
    row = WebhookDelivery
    others = select(row.id).where(
        row.endpoint_id == delivery.endpoint_id,
        row.status == DeliveryStatus.PENDING,
        row.id != delivery.id,
    )
    return uow.session.scalar(others.limit(1)) is not None


def _follow_persons(uow: UnitOfWork, made: Iterable[int]) -> None:
    """Give deliveries about records that became part of others the record that is left, and blank
    the answers about erased persons: those from before may have been looked for by now."""
    row = WebhookDelivery
    is_changed = or_(User.merged_into.is_not(None), User.erased_at.is_not(None))
    query = select(row, User).join(User, User.id == row.person_id).where(row.id.in_(made))
    for delivery, person in uow.session.execute(query.where(is_changed)).all():
        delivery.person_id = person.merged_into or person.id
        delivery.answer = None if person.erased_at else delivery.answer


def _next_try(delivery: WebhookDelivery, outcome: Outcome, now: datetime) -> datetime:
    """By the schedule or, in its place, as the receiver asks; the last one is after three days."""
    asked = retry_after(outcome.retry_after, max_seconds=schedule.MAX_RETRY_AFTER.total_seconds())
    due_at = delivery.due_at
    if asked is not None:
        # No receiver has itself called without a pause.
        due_at = now + max(timedelta(seconds=asked), schedule.FIRST_PAUSES[0])
    return min(due_at, delivery.queued_at + schedule.TRIED_FOR)


def _stop(uow: UnitOfWork, endpoint: WebhookEndpoint, state: EndpointState, reason: str) -> None:
    """Send nothing more, unless it was stopped meanwhile, and tell the owner."""
    if endpoint.state != EndpointState.ACTIVE:
        return
    endpoint.state, endpoint.reason, endpoint.due_at = state, reason, None
    log.info("webhook.stopped", endpoint_id=endpoint.id, state=state)
    person = accounts.get(uow, endpoint.user_id)
    account_mails.enqueue_mail(
        uow,
        MailKind.WEBHOOK_STOPPED,
        person.email,
        user_id=person.id,
        detail=f"{endpoint.id} is {state} now. {reason}",
        request_id=None,
    )
