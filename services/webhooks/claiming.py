"""Which deliveries of an endpoint are tried next: they are counted before, and given back if not.

A claim counts the tries and says when the next ones would be, so that a process that dies has made
each of them like any other: nothing is lost, and nothing is sent for ever.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert

from core import clock
from models import DeliveryStatus, FeedEvent, WebhookDelivery, WebhookEndpoint
from services.feed import reading, showing
from services.feed.catalogue import FeedEventType
from services.feed.positions import FeedPosition, newest_position
from services.webhooks import schedule, signing, type_starts
from services.webhooks.deliveries import AFRESH, MAX_PENDING, TEST_TYPE
from services.webhooks.schedule import Pending
from storage.encryption import KeyWrapper
from storage.unit_of_work import UnitOfWork

# Events that become deliveries at once.
_MAX_TAKEN_EVENTS = 100


@dataclass(frozen=True)
class Message:
    """One try, as it goes out.

    Attributes:
        due_at: and ``last_attempt_at``: those of the delivery before the try was counted.
    """

    delivery_id: int
    url: str
    id: str
    body: bytes
    secrets: list[bytes]
    due_at: datetime
    last_attempt_at: datetime | None


def claim(
    uow: UnitOfWork, wrapper: KeyWrapper, endpoint: WebhookEndpoint, *, most: int
) -> list[Message]:
    """The next tries of a locked endpoint, counted; without any, the endpoint knows when."""
    while True:
        deliveries = _take(uow, endpoint, most)
        if not deliveries:
            return []
        shown = _shown(uow, deliveries)
        kept = [each for each in deliveries if each.id in shown]
        for gone in (each for each in deliveries if each.id not in shown):
            gone.status, gone.error = DeliveryStatus.FAILED, "The event is no longer kept."
        secrets = signing.live_secrets(uow, wrapper, endpoint.id) if kept else []
        messages = [_message(endpoint, each, shown[each.id], secrets) for each in kept]
        _count(uow, kept)
        if messages:
            return messages


def give_back(uow: UnitOfWork, messages: Iterable[Message]) -> None:
    """Undo the count of tries that were not made, of a locked endpoint."""
    row = WebhookDelivery
    for each in messages:
        as_before = {
            "attempts": row.attempts - 1,
            # Its owner may have asked for it anew meanwhile.
            "round_attempts": func.greatest(row.round_attempts - 1, 0),
            "due_at": func.least(row.due_at, each.due_at),
            "last_attempt_at": each.last_attempt_at,
        }
        uow.session.execute(update(row).where(row.id == each.delivery_id).values(**as_before))


def _take(uow: UnitOfWork, endpoint: WebhookEndpoint, most: int) -> list[WebhookDelivery]:
    """The deliveries to try now; without any, the endpoint knows when."""
    pending, now = _pending(uow, endpoint)
    choice = schedule.choose(pending, now, max_pending=MAX_PENDING)
    if choice.delivery_id is None and choice.takes_events and _take_events(uow, endpoint):
        pending, now = _pending(uow, endpoint)
        choice = schedule.choose(pending, now, max_pending=MAX_PENDING)
    # A process that dies after a claim leaves an endpoint that is looked at again.
    endpoint.due_at = choice.due_at if choice.delivery_id is None else now
    endpoint.is_held = not choice.takes_events
    if choice.delivery_id is None:
        return []
    ids = schedule.choose_several(pending, now, most=most)
    row = WebhookDelivery
    found = {each.id: each for each in uow.session.scalars(select(row).where(row.id.in_(ids)))}
    return [found[each] for each in ids if each in found]


def _pending(uow: UnitOfWork, endpoint: WebhookEndpoint) -> tuple[list[Pending], datetime]:
    row = WebhookDelivery
    query = (
        select(row.id, row.queued_at, row.due_at)
        .where(row.endpoint_id == endpoint.id, row.status == DeliveryStatus.PENDING)
        .order_by(row.queued_at, row.place, row.event_id, row.id)
    )
    pending = [Pending(*found) for found in uow.session.execute(query)]
    return pending, uow.session.scalars(select(func.clock_timestamp())).one()


def _count(uow: UnitOfWork, deliveries: Iterable[WebhookDelivery]) -> None:
    """Count a try of each: those that were tried equally often by one statement."""
    of_tries = defaultdict[int, list[int]](list)
    for each in deliveries:
        of_tries[each.round_attempts].append(each.id)
    row = WebhookDelivery
    for tries, ids in of_tries.items():
        counted = {
            "attempts": row.attempts + 1,
            "round_attempts": tries + 1,
            # An event that waits for nothing is as old as its first try: they share the
            # transaction.
            "last_attempt_at": func.now(),
            "due_at": func.now() + schedule.pause_after(tries + 1),
        }
        uow.session.execute(
            update(row)
            .where(row.id.in_(ids))
            .values(**counted)
            .execution_options(synchronize_session=False)
        )


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
    new = insert(WebhookDelivery).values(endpoint_id=endpoint.id)
    again = new.on_conflict_do_update(index_elements=["endpoint_id", "event_id"], set_=AFRESH)
    uow.session.execute(
        again,
        [
            {
                "event_id": event.id,
                "place": event.place,
                "event_type": event.type,
                "person_id": event.data.get("user_id"),
            }
            for event in events
        ],
    )
    return True


def _message(
    endpoint: WebhookEndpoint,
    delivery: WebhookDelivery,
    event: dict[str, Any],
    secrets: list[bytes],
) -> Message:
    event_id = delivery.event_id
    return Message(
        delivery_id=delivery.id,
        url=endpoint.url,
        id=f"test_{delivery.id}" if event_id is None else signing.message_id_of(event_id),
        body=signing.body_of(event),
        secrets=secrets,
        due_at=delivery.due_at,
        last_attempt_at=delivery.last_attempt_at,
    )


def _shown(uow: UnitOfWork, deliveries: Sequence[WebhookDelivery]) -> dict[int, dict[str, Any]]:
    """The event of each delivery, as callers of the API see it now, unless it is kept no longer."""
    asked = [each.event_id for each in deliveries if each.event_id is not None]
    events = uow.session.scalars(select(FeedEvent).where(FeedEvent.id.in_(asked))).all()
    shown = {event["id"]: event for event in showing.show(uow.session, events)}
    return {
        each.id: _test_event(each) if each.event_id is None else shown[each.event_id]
        for each in deliveries
        if each.event_id is None or each.event_id in shown
    }


def _test_event(delivery: WebhookDelivery) -> dict[str, Any]:
    return {
        "id": None,
        "type": TEST_TYPE,
        "occurred_at": clock.iso(delivery.created_at),
        "list_id": None,
        "subject": None,
        "data": {},
    }
