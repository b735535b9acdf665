"""What the answer to a try means: for its delivery, and for the endpoint."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus

from sqlalchemy import func, or_, select

from core.logging import get_logger
from integrations.http_client import retry_after
from models import DeliveryStatus, EndpointState, User, WebhookDelivery, WebhookEndpoint
from services.people import account_mails, accounts
from services.people.account_mails import MailKind
from services.webhooks import schedule
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

FAILED_FOR_DAYS = "It failed for three days."
ANSWERED_GONE = "Its receiver answered 410."


@dataclass(frozen=True)
class Outcome:
    """
    Attributes:
        status: of the answer; ``None``: there was none, and ``error`` says why.
        body: the first 4 KB of the answer.
        retry_after: the header of that name.
    """

    milliseconds: int
    status: int | None = None
    body: bytes = b""
    retry_after: str | None = None
    error: str | None = None

    @property
    def is_success(self) -> bool:
        first, after = HTTPStatus.OK, HTTPStatus.MULTIPLE_CHOICES
        return self.status is not None and first <= self.status < after

    @property
    def is_silence(self) -> bool:
        """Whether we waited for an answer that did not come."""
        return self.status is None and timedelta(milliseconds=self.milliseconds) >= schedule.SILENCE


def write(
    uow: UnitOfWork, endpoint: WebhookEndpoint, url: str, made: Mapping[int, Outcome]
) -> None:
    """Write the outcomes of tries, by the delivery's id and in the order in which they were made.

    The endpoint is locked, and they went to this URL.
    """
    row = WebhookDelivery
    now = uow.session.scalars(select(func.now())).one()
    found = {each.id: each for each in uow.session.scalars(select(row).where(row.id.in_(made)))}
    changed = _changed_persons(uow, found.values())
    for delivery_id, outcome in made.items():
        if url == endpoint.url:
            endpoint.silences = endpoint.silences + 1 if outcome.is_silence else 0
            rest = schedule.rest_after(endpoint.silences)
            endpoint.rests_until = None if rest is None else now + rest
        delivery = found.get(delivery_id)
        if delivery is None:  # it was past its time
            continue
        _write_one(uow, endpoint, delivery, outcome, url=url, now=now)
        person = changed.get(delivery.person_id)
        if person is not None:
            delivery.person_id = person.merged_into or person.id
            delivery.answer = None if person.erased_at else delivery.answer


def _write_one(
    uow: UnitOfWork,
    endpoint: WebhookEndpoint,
    delivery: WebhookDelivery,
    outcome: Outcome,
    *,
    url: str,
    now: datetime,
) -> None:
    delivery.status_code, delivery.milliseconds = outcome.status, outcome.milliseconds
    delivery.answer, delivery.error = outcome.body or None, outcome.error
    if outcome.is_success:
        delivery.status, delivery.delivered_at = DeliveryStatus.DELIVERED, now
        endpoint.failing_since = None
    # A receiver that is gone since its owner named another one ends nothing.
    elif outcome.status == HTTPStatus.GONE and url == endpoint.url:
        delivery.status = DeliveryStatus.FAILED
        _stop(uow, endpoint, EndpointState.ENDED, ANSWERED_GONE)
    else:
        _write_failure(uow, endpoint, delivery, outcome, now)


def _write_failure(
    uow: UnitOfWork,
    endpoint: WebhookEndpoint,
    delivery: WebhookDelivery,
    outcome: Outcome,
    now: datetime,
) -> None:
    """Try the delivery again or give it up, and pause the endpoint that fails for days."""
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


def _changed_persons(
    uow: UnitOfWork, deliveries: Iterable[WebhookDelivery]
) -> dict[int | None, User]:
    """The persons of events whose records became part of others since, or who were erased: answers
    are blanked with them, and those of erased persons may have been by now."""
    persons = {each.person_id for each in deliveries}
    is_changed = or_(User.merged_into.is_not(None), User.erased_at.is_not(None))
    query = select(User).where(User.id.in_(persons), is_changed)
    return {each.id: each for each in uow.session.scalars(query)}


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
