"""The job of an endpoint: it sends what is due, one delivery after the other.

Each delivery takes two transactions with the call between them. The first one counts the try and
says when the next one would be, so that a process that dies has made a try like any other: nothing
is lost, and nothing is sent for ever. The second one writes the answer, and is the first one of the
next delivery. All writes check the job's attempt: a worker that lost its lease writes nothing.
"""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from core import clock
from core.lanes import Lane
from core.scopes import Scope
from integrations.receivers.posting import NoAnswer, ReceiverClient
from models import (
    DeliveryStatus,
    EndpointState,
    FeedEvent,
    Job,
    JobStatus,
    WebhookDelivery,
    WebhookEndpoint,
)
from services.feed import reading, showing
from services.feed.catalogue import FeedEventType
from services.feed.positions import FeedPosition, newest_position
from services.jobs import kinds
from services.jobs import lease as leases
from services.jobs.kinds import JobKind
from services.jobs.lease import Lease
from services.webhooks import outcomes, schedule, signing, type_starts
from services.webhooks.deliveries import AFRESH, MAX_PENDING, TEST_TYPE
from services.webhooks.outcomes import Outcome
from services.webhooks.schedule import Pending
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

SEND_EVENTS = kinds.register(
    JobKind("webhook.send", lane=Lane.WEBHOOKS, scope=Scope.WEBHOOK, retryable=False)
)
# Then other endpoints have a turn.
MAX_TURN_SECONDS = 5.0
# So many of an owner's endpoints are called at once: however many hang, others have threads left.
MAX_AT_ONCE_OF_AN_OWNER = 2
_PUT_OFF = timedelta(seconds=2)
# Events that become deliveries at once.
_MAX_TAKEN_EVENTS = 100


@dataclass(frozen=True)
class Message:
    """One try, as it goes out."""

    delivery_id: int
    url: str
    id: str
    body: bytes
    secrets: list[bytes]


def run(resources: Resources, lease: Lease, receivers: ReceiverClient) -> None:
    ends_at = time.monotonic() + MAX_TURN_SECONDS
    sent = 0
    with resources.unit_of_work() as uow:
        # Before the endpoint is locked, as every transaction does.
        leases.progress(uow, lease, done=sent)
        message = _next_message(uow, resources, lease, sent)
    while message is not None:
        outcome = _post(receivers, message)
        sent += 1
        with resources.unit_of_work() as uow:
            leases.progress(uow, lease, done=sent)
            endpoint = _locked(uow, lease)
            if endpoint is not None:
                outcomes.write(uow, endpoint, message.delivery_id, message.url, outcome)
            if time.monotonic() > ends_at:
                leases.yield_turn(uow, lease)
                return
            message = _next_message(uow, resources, lease, sent)


def _post(receivers: ReceiverClient, message: Message) -> Outcome:
    headers = signing.signed_headers(message.secrets, message.id, clock.now(), message.body)
    headers |= {"Content-Type": "application/json", "User-Agent": "Pressroom-Webhooks/1"}
    began = time.monotonic()
    try:
        answer = receivers.post(message.url, message.body, headers)
    except NoAnswer as error:
        return Outcome(_milliseconds_since(began), error=str(error))
    took = _milliseconds_since(began)
    return Outcome(took, answer.status, answer.body, answer.retry_after)


def _milliseconds_since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


def _next_message(uow: UnitOfWork, resources: Resources, lease: Lease, sent: int) -> Message | None:
    """The next try, counted; ``None``: there is nothing to send now, and the job has ended."""
    endpoint = _locked(uow, lease)
    if endpoint is not None and endpoint.state == EndpointState.ACTIVE:
        if _is_resting(uow, endpoint):
            endpoint.due_at, endpoint.is_held = endpoint.rests_until, True
        elif _is_one_too_many(uow, lease, endpoint):
            endpoint.due_at, endpoint.is_held = func.now() + _PUT_OFF, True
        else:
            while (delivery := _take(uow, endpoint)) is not None:
                event = _shown(uow, delivery)
                if event is not None:
                    return _message(uow, resources, endpoint, delivery, event)
                delivery.status = DeliveryStatus.FAILED
                delivery.error = "The event is no longer kept."
                uow.session.flush()
    leases.succeed(uow, lease, {"sent": sent})
    return None


def _locked(uow: UnitOfWork, lease: Lease) -> WebhookEndpoint | None:
    query = select(WebhookEndpoint).where(WebhookEndpoint.id == lease.subject_id)
    return uow.session.scalar(query.with_for_update())


def _is_resting(uow: UnitOfWork, endpoint: WebhookEndpoint) -> bool:
    until = endpoint.rests_until
    return until is not None and until > uow.session.scalars(select(func.now())).one()


def _is_one_too_many(uow: UnitOfWork, lease: Lease, endpoint: WebhookEndpoint) -> bool:
    """Whether enough jobs of the owner run that began before this one."""
    before = select(func.count()).where(
        Job.status == JobStatus.RUNNING,
        Job.lane == Lane.WEBHOOKS,
        Job.on_behalf_of == endpoint.user_id,
        Job.id < lease.job_id,
    )
    return (uow.session.scalar(before) or 0) >= MAX_AT_ONCE_OF_AN_OWNER


def _take(uow: UnitOfWork, endpoint: WebhookEndpoint) -> WebhookDelivery | None:
    """The delivery to try now, with its next try noted; ``None``: the endpoint knows when."""
    choice = schedule.choose(*_pending(uow, endpoint), max_pending=MAX_PENDING)
    if choice.delivery_id is None and choice.takes_events and _take_events(uow, endpoint):
        choice = schedule.choose(*_pending(uow, endpoint), max_pending=MAX_PENDING)
    endpoint.due_at, endpoint.is_held = choice.due_at, not choice.takes_events
    if choice.delivery_id is None:
        return None
    # A process that dies now leaves an endpoint that is looked at again.
    endpoint.due_at = func.now()
    delivery = uow.session.get_one(WebhookDelivery, choice.delivery_id)
    delivery.attempts += 1
    delivery.round_attempts += 1
    delivery.last_attempt_at = func.now()
    delivery.due_at = func.now() + schedule.pause_after(delivery.round_attempts)
    return delivery


def _pending(uow: UnitOfWork, endpoint: WebhookEndpoint) -> tuple[list[Pending], datetime]:
    row = WebhookDelivery
    query = (
        select(row.id, row.queued_at, row.due_at)
        .where(row.endpoint_id == endpoint.id, row.status == DeliveryStatus.PENDING)
        .order_by(row.queued_at, row.place, row.event_id, row.id)
    )
    pending = [Pending(*found) for found in uow.session.execute(query)]
    return pending, uow.session.scalars(select(func.clock_timestamp())).one()


def _take_events(uow: UnitOfWork, endpoint: WebhookEndpoint) -> bool:
    """Make deliveries of the next events; whether there were any."""
    # Read before the events are: all up to here are seen, if there is none.
    newest = newest_position(uow.session)
    position = type_starts.position_of(endpoint)
    types = [FeedEventType(each) for each in endpoint.types if each in [*FeedEventType]]
    events = reading.read_after(
        uow.session,
        endpoint.user_id,
        position,
        types=types,
        later=type_starts.later_starts(endpoint),
        list_id=endpoint.list_id,
        limit=_MAX_TAKEN_EVENTS,
    )
    last = FeedPosition.of_event(events[-1]) if events else max(newest, position)
    endpoint.place, endpoint.event_id = last.place, last.id
    if not events:
        return False
    # Deliveries that are there are sent once more: their owner asked for it.
    new = insert(WebhookDelivery).values(
        [
            {
                "endpoint_id": endpoint.id,
                "event_id": event.id,
                "place": event.place,
                "event_type": event.type,
                "person_id": event.data.get("user_id"),
            }
            for event in events
        ]
    )
    again = new.on_conflict_do_update(index_elements=["endpoint_id", "event_id"], set_=AFRESH)
    uow.session.execute(again)
    return True


def _message(
    uow: UnitOfWork,
    resources: Resources,
    endpoint: WebhookEndpoint,
    delivery: WebhookDelivery,
    event: dict[str, Any],
) -> Message:
    event_id = delivery.event_id
    return Message(
        delivery_id=delivery.id,
        url=endpoint.url,
        id=f"test_{delivery.id}" if event_id is None else signing.message_id_of(event_id),
        body=signing.body_of(event),
        secrets=signing.live_secrets(uow, resources.key_wrapper, endpoint.id),
    )


def _shown(uow: UnitOfWork, delivery: WebhookDelivery) -> dict[str, Any] | None:
    """The event as callers of the API see it now; ``None``: it is no longer kept."""
    if delivery.event_id is None:
        return {
            "id": None,
            "type": TEST_TYPE,
            "occurred_at": clock.iso(delivery.created_at),
            "list_id": None,
            "subject": None,
            "data": {},
        }
    event = uow.session.get(FeedEvent, delivery.event_id)
    shown = [] if event is None else showing.show(uow.session, [event])
    return shown[0] if shown else None
