"""Claims the deliveries that an endpoint attempts next.

A claim counts the attempt and schedules the next one before anything is sent. A delivery whose
worker dies is therefore retried like any other, and no delivery is retried forever.

The pauses between attempts grow for an hour, and then stay at three hours. Events arrive in order
while the oldest pending delivery has waited for less than a minute. After that, a failing delivery
no longer holds up the others.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert

from core import clock
from models import DeliveryStatus, FeedEvent, WebhookDelivery, WebhookEndpoint
from services.feed import reading
from services.feed.reading import FeedPosition, newest_position
from services.webhooks import signing, webhook_endpoints
from services.webhooks.deliveries import MAX_PENDING, QUEUED_AGAIN, TEST_TYPE
from services.webhooks.signing import message_id_of
from storage.unit_of_work import UnitOfWork

# The pauses after the first attempt, after the second one and so on.
FIRST_PAUSES = tuple(timedelta(seconds=seconds) for seconds in (5, 30, 120, 600, 1800, 3600))
LATER_PAUSE = timedelta(hours=3)
IN_ORDER_FOR = timedelta(minutes=1)
# Spreads the retries of deliveries that failed together.
_JITTER = 0.1
_MAX_EVENTS_PER_BATCH = 100


class Pending(NamedTuple):
    """A pending delivery."""

    id: int
    queued_at: datetime
    due_at: datetime


@dataclass(frozen=True)
class Choice:
    """The delivery that an endpoint attempts next.

    Attributes:
        delivery_id: the delivery to send now.
        due_at: when to choose again if there is nothing to send now.
        takes_events: whether new events may become deliveries now.
    """

    delivery_id: int | None = None
    due_at: datetime | None = None
    takes_events: bool = False


@dataclass(frozen=True)
class Message:
    """A claimed delivery with its body and secrets.

    ``delivery`` holds the values from before the claim counted the attempt.
    """

    delivery: WebhookDelivery
    url: str
    body: bytes
    secrets: list[bytes]

    @property
    def id(self) -> str:
        event_id = self.delivery.event_id
        return f"test_{self.delivery.id}" if event_id is None else message_id_of(event_id)


def claim_deliveries(uow: UnitOfWork, endpoint: WebhookEndpoint, *, limit: int) -> list[Message]:
    """Claim the deliveries that a locked endpoint attempts next.

    If there are none, set the time when the endpoint is due again.
    """
    while True:
        deliveries = _choose_rows(uow, endpoint, limit)
        if not deliveries:
            return []
        event_ids = [row.event_id for row in deliveries if row.event_id is not None]
        events = uow.session.scalars(select(FeedEvent).where(FeedEvent.id.in_(event_ids))).all()
        event_by_id = {event["id"]: event for event in reading.show(uow.session, events)}
        # The event of each delivery as the API returns it now. An expired event is missing.
        content_by_delivery = {
            row.id: _test_event(row) if row.event_id is None else event_by_id[row.event_id]
            for row in deliveries
            if row.event_id is None or row.event_id in event_by_id
        }
        sendable = [row for row in deliveries if row.id in content_by_delivery]
        for row in deliveries:
            if row.id not in content_by_delivery:
                row.status = DeliveryStatus.FAILED
                row.error = "The event is no longer kept."
        if not sendable:
            continue
        secrets = signing.live_secrets(uow, endpoint.id)
        _count_attempts(uow, sendable)
        return [
            Message(
                row, endpoint.url, signing.serialise_event(content_by_delivery[row.id]), secrets
            )
            for row in sendable
        ]


def release_claims(uow: UnitOfWork, messages: Iterable[Message]) -> None:
    """Undo the counting of attempts that were not made. The endpoint is locked."""
    table = WebhookDelivery
    for message in messages:
        before = message.delivery
        values = {
            "attempts": table.attempts - 1,
            # The owner may have resent the delivery in the meantime, which resets this count.
            "round_attempts": func.greatest(table.round_attempts - 1, 0),
            "due_at": func.least(table.due_at, before.due_at),
            "last_attempt_at": before.last_attempt_at,
        }
        uow.session.execute(update(table).where(table.id == before.id).values(**values))


def _choose_rows(uow: UnitOfWork, endpoint: WebhookEndpoint, limit: int) -> list[WebhookDelivery]:
    """Return the deliveries to attempt now.

    If there are none, set the time when the endpoint is due again.
    """
    pending, now = _load_pending(uow, endpoint)
    choice = choose_delivery(pending, now, max_pending=MAX_PENDING)
    if choice.delivery_id is None and choice.takes_events and _queue_events(uow, endpoint):
        pending, now = _load_pending(uow, endpoint)
        choice = choose_delivery(pending, now, max_pending=MAX_PENDING)
    # A claimed endpoint stays due, so that another process takes over if this one dies.
    endpoint.due_at = choice.due_at if choice.delivery_id is None else now
    endpoint.is_held = not choice.takes_events
    if choice.delivery_id is None:
        return []
    ids = choose_deliveries(pending, now, limit=limit)
    query = select(WebhookDelivery).where(WebhookDelivery.id.in_(ids))
    row_by_id = {row.id: row for row in uow.session.scalars(query)}
    return [row_by_id[row_id] for row_id in ids if row_id in row_by_id]


def _load_pending(uow: UnitOfWork, endpoint: WebhookEndpoint) -> tuple[list[Pending], datetime]:
    """Return the endpoint's pending deliveries in the order of their events, and the time."""
    table = WebhookDelivery
    query = select(table.id, table.queued_at, table.due_at)
    query = query.where(table.endpoint_id == endpoint.id, table.status == DeliveryStatus.PENDING)
    query = query.order_by(table.queued_at, table.place, table.event_id, table.id)
    pending = [Pending(*row) for row in uow.session.execute(query)]
    return pending, uow.session.scalars(select(func.clock_timestamp())).one()


def choose_delivery(pending: Sequence[Pending], now: datetime, *, max_pending: int) -> Choice:
    """Choose the delivery to attempt next.

    ``pending``: all pending deliveries of the endpoint, in the order of their events.
    """
    if not pending:
        return Choice(takes_events=True)
    oldest = pending[0]
    order_ends_at = oldest.queued_at + IN_ORDER_FOR
    keeps_order = now < order_ends_at
    # If several deliveries are due at the same time, choose the first one.
    first = oldest if keeps_order else min(pending, key=lambda delivery: delivery.due_at)
    if first.due_at <= now:
        return Choice(first.id)
    if keeps_order:
        return Choice(due_at=min(first.due_at, order_ends_at))
    return Choice(due_at=first.due_at, takes_events=len(pending) < max_pending)


def choose_deliveries(pending: Sequence[Pending], now: datetime, *, limit: int) -> list[int]:
    """Choose several deliveries, assuming that each one succeeds before the next one is chosen."""
    remaining = list(pending)
    ids: list[int] = []
    while len(ids) < limit:
        choice = choose_delivery(remaining, now, max_pending=0)
        if choice.delivery_id is None:
            break
        ids.append(choice.delivery_id)
        remaining = [each for each in remaining if each.id != choice.delivery_id]
    return ids


def _queue_events(uow: UnitOfWork, endpoint: WebhookEndpoint) -> bool:
    """Queue deliveries of the endpoint's next events. Return whether there were any."""
    # Read the newest position before the events: without events, everything up to it was seen.
    newest = newest_position(uow.session)
    position = webhook_endpoints.position_of(endpoint)
    query = reading.next_events(
        endpoint.user_id,
        position,
        types=webhook_endpoints.known_types(endpoint),
        later=webhook_endpoints.later_starts(endpoint),
        list_id=endpoint.list_id,
        limit=_MAX_EVENTS_PER_BATCH,
    )
    events = uow.session.scalars(query).all()
    last = FeedPosition.of_event(events[-1]) if events else max(newest, position)
    endpoint.place = last.place
    endpoint.event_id = last.id
    if not events:
        return False
    # A delivery that exists already is sent again, because its owner asked for a replay.
    new = insert(WebhookDelivery).values(endpoint_id=endpoint.id)
    upsert = new.on_conflict_do_update(
        index_elements=["endpoint_id", "event_id"], set_=QUEUED_AGAIN
    )
    rows = [
        {
            "event_id": event.id,
            "place": event.place,
            "event_type": event.type,
            "person_id": event.data.get("user_id"),
        }
        for event in events
    ]
    uow.session.execute(upsert, rows)
    return True


def _test_event(delivery: WebhookDelivery) -> dict[str, Any]:
    return {
        "id": None,
        "type": TEST_TYPE,
        "occurred_at": clock.iso(delivery.created_at),
        "list_id": None,
        "subject": None,
        "data": {},
    }


def _count_attempts(uow: UnitOfWork, deliveries: Iterable[WebhookDelivery]) -> None:
    """Count an attempt of each delivery, with one statement per number of earlier attempts."""
    ids_by_attempts = defaultdict[int, list[int]](list)
    for row in deliveries:
        ids_by_attempts[row.round_attempts].append(row.id)
    table = WebhookDelivery
    for attempts, ids in ids_by_attempts.items():
        values = {
            "attempts": table.attempts + 1,
            "round_attempts": attempts + 1,
            # The time of the transaction: a delivery that is sent at once was queued in the same
            # transaction, so its first attempt is as old as its place in the queue.
            "last_attempt_at": func.now(),
            "due_at": func.now() + pause_after(attempts + 1),
        }
        statement = update(table).where(table.id.in_(ids)).values(**values)
        uow.session.execute(statement.execution_options(synchronize_session=False))


def pause_after(attempts: int) -> timedelta:
    """Return the pause after this number of attempts, with some jitter."""
    pause = FIRST_PAUSES[attempts - 1] if attempts <= len(FIRST_PAUSES) else LATER_PAUSE
    return pause * random.uniform(1, 1 + _JITTER)  # noqa: S311 - no secret
