"""Claims an endpoint's next deliveries.

Before a delivery is sent, the claim counts the attempt and schedules the next attempt. A delivery
whose worker dies is therefore retried, and no delivery is retried forever.

The pauses between attempts of a delivery grow up to three hours. While an endpoint's oldest pending
delivery is less than a minute old, events are sent in order. After a minute, a failing delivery no
longer delays the endpoint's other deliveries.
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
from services.webhooks.deliveries import MAX_PENDING, REQUEUED_VALUES, TEST_EVENT_TYPE
from services.webhooks.signing import build_message_id
from storage.unit_of_work import UnitOfWork

# The pauses after a delivery's first attempts, in the order of the attempts.
FIRST_PAUSES = tuple(timedelta(seconds=seconds) for seconds in (5, 30, 120, 600, 1800, 3600))
LATER_PAUSE = timedelta(hours=3)
ORDER_PERIOD = timedelta(minutes=1)
# The largest random part of a pause. Jitter spreads the retries of deliveries that failed together.
_MAX_JITTER = 0.1
_MAX_EVENTS_PER_BATCH = 100


class Pending(NamedTuple):
    """The times of a pending delivery."""

    id: int
    queued_at: datetime
    due_at: datetime


@dataclass(frozen=True)
class Choice:
    """The decision about an endpoint's next delivery.

    Attributes:
        delivery_id: the delivery to send now. ``None`` if no delivery is due.
        due_at: the time of the next decision, if no delivery is due.
        takes_events: whether the endpoint may queue deliveries of new events.
    """

    delivery_id: int | None = None
    due_at: datetime | None = None
    takes_events: bool = False


@dataclass(frozen=True)
class Message:
    """A claimed delivery with its body and secrets.

    ``delivery`` holds the values before the claim, so its counts don't include this attempt.
    """

    delivery: WebhookDelivery
    url: str
    body: bytes
    secrets: list[bytes]

    @property
    def id(self) -> str:
        event_id = self.delivery.event_id
        return f"test_{self.delivery.id}" if event_id is None else build_message_id(event_id)


def claim_deliveries(uow: UnitOfWork, endpoint: WebhookEndpoint, *, limit: int) -> list[Message]:
    """Claim the next deliveries of a locked endpoint.

    If no delivery is due, set the time when the endpoint is due again.
    """
    while True:
        deliveries = _choose_rows(uow, endpoint, limit)
        if not deliveries:
            return []
        event_ids = [row.event_id for row in deliveries if row.event_id is not None]
        events = uow.session.scalars(select(FeedEvent).where(FeedEvent.id.in_(event_ids))).all()
        event_by_id = {event["id"]: event for event in reading.render_events(uow.session, events)}
        # Maps each delivery's id to its event in the API's format. Deleted events are missing.
        content_by_delivery = {
            row.id: _build_test_event(row) if row.event_id is None else event_by_id[row.event_id]
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
        secrets = signing.load_live_secrets(uow, endpoint.id)
        _count_attempts(uow, sendable)
        return [
            Message(
                row, endpoint.url, signing.serialise_event(content_by_delivery[row.id]), secrets
            )
            for row in sendable
        ]


def release_claims(uow: UnitOfWork, messages: Iterable[Message]) -> None:
    """Release claimed deliveries that were not sent. The caller has locked their endpoint."""
    table = WebhookDelivery
    for message in messages:
        before = message.delivery
        values = {
            "attempts": table.attempts - 1,
            # If the owner resent the delivery since the claim, the count is 0 already.
            "round_attempts": func.greatest(table.round_attempts - 1, 0),
            "due_at": func.least(table.due_at, before.due_at),
            "last_attempt_at": before.last_attempt_at,
        }
        uow.session.execute(update(table).where(table.id == before.id).values(**values))


def _choose_rows(uow: UnitOfWork, endpoint: WebhookEndpoint, limit: int) -> list[WebhookDelivery]:
    """Return the endpoint's deliveries to send now, and set when the endpoint is due again."""
    pending, now = _load_pending(uow, endpoint)
    choice = choose_delivery(pending, now, max_pending=MAX_PENDING)
    if choice.delivery_id is None and choice.takes_events and _queue_events(uow, endpoint):
        pending, now = _load_pending(uow, endpoint)
        choice = choose_delivery(pending, now, max_pending=MAX_PENDING)
    # An endpoint with claimed deliveries stays due. If this process dies, another worker takes
    # over.
    endpoint.due_at = choice.due_at if choice.delivery_id is None else now
    endpoint.is_held = not choice.takes_events
    if choice.delivery_id is None:
        return []
    ids = choose_deliveries(pending, now, limit=limit)
    query = select(WebhookDelivery).where(WebhookDelivery.id.in_(ids))
    row_by_id = {row.id: row for row in uow.session.scalars(query)}
    return [row_by_id[row_id] for row_id in ids if row_id in row_by_id]


def _load_pending(uow: UnitOfWork, endpoint: WebhookEndpoint) -> tuple[list[Pending], datetime]:
    """Return the endpoint's pending deliveries in the order of events, and the database's time."""
    table = WebhookDelivery
    query = select(table.id, table.queued_at, table.due_at)
    query = query.where(table.endpoint_id == endpoint.id, table.status == DeliveryStatus.PENDING)
    query = query.order_by(table.queued_at, table.place, table.event_id, table.id)
    pending = [Pending(*row) for row in uow.session.execute(query)]
    return pending, uow.session.scalars(select(func.clock_timestamp())).one()


def choose_delivery(pending: Sequence[Pending], now: datetime, *, max_pending: int) -> Choice:
    """Choose the endpoint's next delivery.

    ``pending``: all pending deliveries of the endpoint, in the order of their events.
    """
    if not pending:
        return Choice(takes_events=True)
    oldest = pending[0]
    order_ends_at = oldest.queued_at + ORDER_PERIOD
    keeps_order = now < order_ends_at
    # If several deliveries are due at the same time, ``min`` returns the oldest delivery.
    first = oldest if keeps_order else min(pending, key=lambda delivery: delivery.due_at)
    if first.due_at <= now:
        return Choice(first.id)
    if keeps_order:
        return Choice(due_at=min(first.due_at, order_ends_at))
    return Choice(due_at=first.due_at, takes_events=len(pending) < max_pending)


def choose_deliveries(pending: Sequence[Pending], now: datetime, *, limit: int) -> list[int]:
    """Choose a batch of deliveries, on the assumption that all of them succeed."""
    remaining = list(pending)
    ids: list[int] = []
    while len(ids) < limit:
        choice = choose_delivery(remaining, now, max_pending=0)
        if choice.delivery_id is None:
            break
        ids.append(choice.delivery_id)
        remaining = [delivery for delivery in remaining if delivery.id != choice.delivery_id]
    return ids


def _queue_events(uow: UnitOfWork, endpoint: WebhookEndpoint) -> bool:
    """Queue deliveries of the endpoint's next events. Return whether any event was queued."""
    # Read the feed's newest position before its events. Without new events, the endpoint moves to
    # the newest position, and no event can be missed between the two reads.
    newest = newest_position(uow.session)
    position = webhook_endpoints.get_position(endpoint)
    query = reading.next_events(
        endpoint.user_id,
        position,
        types=webhook_endpoints.list_known_types(endpoint),
        type_starts=webhook_endpoints.get_type_starts(endpoint),
        list_id=endpoint.list_id,
        limit=_MAX_EVENTS_PER_BATCH,
    )
    events = uow.session.scalars(query).all()
    last = FeedPosition.of_event(events[-1]) if events else max(newest, position)
    endpoint.place = last.place
    endpoint.event_id = last.id
    if not events:
        return False
    # If a delivery of the event exists, its owner requested a replay, so send the event again.
    new = insert(WebhookDelivery).values(endpoint_id=endpoint.id)
    upsert = new.on_conflict_do_update(
        index_elements=["endpoint_id", "event_id"], set_=REQUEUED_VALUES
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


def _build_test_event(delivery: WebhookDelivery) -> dict[str, Any]:
    return {
        "id": None,
        "type": TEST_EVENT_TYPE,
        "occurred_at": clock.format_timestamp(delivery.created_at),
        "list_id": None,
        "subject": None,
        "data": {},
    }


def _count_attempts(uow: UnitOfWork, deliveries: Iterable[WebhookDelivery]) -> None:
    """Count one attempt of each delivery, and schedule the next attempts."""
    ids_by_attempts = defaultdict[int, list[int]](list)
    for row in deliveries:
        ids_by_attempts[row.round_attempts].append(row.id)
    table = WebhookDelivery
    # Run one UPDATE per number of earlier attempts, because the pause depends on that number.
    for attempts, ids in ids_by_attempts.items():
        values = {
            "attempts": table.attempts + 1,
            "round_attempts": attempts + 1,
            # Use the transaction's time, so that a delivery that is queued and claimed in the same
            # transaction has equal times of queuing and first attempt.
            "last_attempt_at": func.now(),
            "due_at": func.now() + choose_pause(attempts + 1),
        }
        statement = update(table).where(table.id.in_(ids)).values(**values)
        uow.session.execute(statement.execution_options(synchronize_session=False))


def choose_pause(attempts: int) -> timedelta:
    """Return the pause after this number of attempts, with a random part."""
    pause = FIRST_PAUSES[attempts - 1] if attempts <= len(FIRST_PAUSES) else LATER_PAUSE
    return pause * random.uniform(1, 1 + _MAX_JITTER)  # noqa: S311 - no secret
