"""Chooses and claims the next deliveries to a webhook endpoint.

A worker claims deliveries before it sends them. A claim increments a delivery's number of attempts
and schedules its next attempt. If a worker dies, its claimed deliveries are retried at the
scheduled time. Each claim counts as an attempt, so that no delivery is retried forever, even if
workers crash.

The pause between two attempts grows from five seconds to three hours. An endpoint gets its events
in order, unless its oldest pending delivery is more than a minute old.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, BigInteger, any_, bindparam, func, literal, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from core.pauses import Pauses
from models import DeliveryStatus, WebhookDelivery, WebhookEndpoint
from services.feed import reading
from services.feed.reading import FeedPosition, newest_position
from services.jobs.pauses import build_pause
from services.webhooks import messages, signing, webhook_endpoints
from services.webhooks.deliveries import MAX_PENDING, REQUEUED_VALUES
from storage.unit_of_work import UnitOfWork

# The pauses after the delivery attempts.
PAUSES = Pauses(
    tuple(timedelta(seconds=seconds) for seconds in (5, 30, 120, 600, 1800, 3600, 10_800)),
    jitter=0.1,
)
ORDER_PERIOD = timedelta(minutes=1)
_MAX_EVENTS_PER_BATCH = 100


# Sorts deliveries in the order of their events. An endpoint's deliveries are sent in the order of
# their events, unless the endpoint's oldest pending delivery is more than ``ORDER_PERIOD`` old.
_EVENT_ORDER = (
    WebhookDelivery.queued_at,
    WebhookDelivery.place,
    WebhookDelivery.event_id,
    WebhookDelivery.id,
)
_RANKED = (
    select(
        WebhookDelivery.id,
        func.row_number().over(order_by=_EVENT_ORDER).label("event_rank"),
        func.row_number().over(order_by=(WebhookDelivery.due_at, *_EVENT_ORDER)).label("due_rank"),
        func.count().over().label("pending_count"),
    )
    .where(
        WebhookDelivery.endpoint_id == bindparam("endpoint_id"),
        WebhookDelivery.status == DeliveryStatus.PENDING,
    )
    .subquery()
)
# Finds an endpoint's pending deliveries with the earliest due times or with the oldest events. An
# endpoint can have 2,000 pending deliveries, so the query doesn't return all of them.
_CANDIDATES = (
    select(WebhookDelivery, _RANKED.c.pending_count, func.clock_timestamp())
    .join(_RANKED, _RANKED.c.id == WebhookDelivery.id)
    .where(
        or_(_RANKED.c.event_rank <= bindparam("limit"), _RANKED.c.due_rank <= bindparam("limit"))
    )
    .order_by(_RANKED.c.event_rank)
)

# If the same transaction queues and claims a delivery, ``last_attempt_at`` equals ``queued_at``,
# because in Postgres ``now()`` returns the start time of the transaction.
_COUNT_ATTEMPTS = (
    update(WebhookDelivery)
    .where(WebhookDelivery.id == any_(bindparam("ids", type_=ARRAY(BigInteger))))
    .values(
        attempts=WebhookDelivery.attempts + 1,
        round_attempts=WebhookDelivery.round_attempts + 1,
        last_attempt_at=func.now(),
        due_at=func.now() + build_pause(PAUSES, WebhookDelivery.round_attempts + 1),
    )
    .execution_options(synchronize_session=False)
)


class Pending(NamedTuple):
    id: int
    queued_at: datetime
    due_at: datetime


@dataclass(frozen=True)
class Choice:
    """The next delivery, and whether new events may be queued (``takes_events``).

    ``due_at`` is ``None`` if a delivery is due now or none is pending.
    """

    delivery_id: int | None = None
    due_at: datetime | None = None
    takes_events: bool = False


@dataclass(frozen=True)
class _Candidates:
    """Some pending deliveries in event order. ``loaded_at`` is the database server's time."""

    rows: list[WebhookDelivery]
    pending_count: int
    loaded_at: datetime

    @property
    def pending(self) -> list[Pending]:
        return [Pending(row.id, row.queued_at, row.due_at) for row in self.rows]

    def choose_first(self) -> Choice:
        omitted_count = self.pending_count - len(self.rows)
        return choose_delivery(
            self.pending, self.loaded_at, max_pending=MAX_PENDING - omitted_count
        )


@dataclass(frozen=True)
class Message:
    """A claimed delivery. ``delivery.attempts`` excludes the claimed attempt."""

    delivery: WebhookDelivery
    url: str
    body: bytes
    secrets: list[bytes]

    @property
    def id(self) -> str:
        return messages.get_message_id(self.delivery)


def claim_deliveries(uow: UnitOfWork, endpoint: WebhookEndpoint, *, limit: int) -> list[Message]:
    """Claim deliveries to a locked endpoint, or store when the next one becomes due."""
    while True:
        deliveries = _choose_rows(uow, endpoint, limit)
        if not deliveries:
            return []
        event_by_delivery = messages.load_events(uow, deliveries)
        sendable = [row for row in deliveries if row.id in event_by_delivery]
        for row in deliveries:
            if row.id not in event_by_delivery:
                row.status = DeliveryStatus.FAILED
                row.error = "The event has been deleted."
        if not sendable:
            continue
        secrets = signing.load_live_secrets(uow, endpoint.id)
        uow.session.execute(_COUNT_ATTEMPTS, {"ids": [row.id for row in sendable]})
        return [
            Message(row, endpoint.url, signing.serialise_event(event_by_delivery[row.id]), secrets)
            for row in sendable
        ]


def release_claims(uow: UnitOfWork, messages: Iterable[Message]) -> None:
    """Release deliveries that were not sent. The caller must have locked the endpoint."""
    table = WebhookDelivery
    for message in messages:
        before = message.delivery
        values = {
            "attempts": table.attempts - 1,
            # ``round_attempts`` is already 0 if the owner requested a redelivery after a worker
            # claimed the delivery.
            "round_attempts": func.greatest(table.round_attempts - 1, 0),
            "due_at": func.least(table.due_at, before.due_at),
            "last_attempt_at": before.last_attempt_at,
        }
        uow.session.execute(update(table).where(table.id == before.id).values(**values))


def _choose_rows(uow: UnitOfWork, endpoint: WebhookEndpoint, limit: int) -> list[WebhookDelivery]:
    candidates = _load_candidates(uow, endpoint, limit)
    choice = candidates.choose_first()
    if choice.delivery_id is None and choice.takes_events and _queue_events(uow, endpoint):
        candidates = _load_candidates(uow, endpoint, limit)
        choice = candidates.choose_first()
    # An endpoint with claimed deliveries stays due, so that another worker takes over if this
    # process dies.
    endpoint.due_at = choice.due_at if choice.delivery_id is None else candidates.loaded_at
    endpoint.is_held = not choice.takes_events
    if choice.delivery_id is None:
        return []
    row_by_id = {row.id: row for row in candidates.rows}
    ids = choose_deliveries(candidates.pending, candidates.loaded_at, limit=limit)
    return [row_by_id[row_id] for row_id in ids]


def _load_candidates(uow: UnitOfWork, endpoint: WebhookEndpoint, limit: int) -> _Candidates:
    parameters = {"endpoint_id": endpoint.id, "limit": limit}
    results = uow.session.execute(
        _CANDIDATES, parameters, execution_options={"populate_existing": True}
    ).all()
    rows = [row for row, _, _ in results]
    if not results:
        return _Candidates(rows, 0, datetime.min.replace(tzinfo=UTC))
    _, pending_count, loaded_at = results[0]
    return _Candidates(rows, pending_count, loaded_at)


def choose_delivery(pending: Sequence[Pending], now: datetime, *, max_pending: int) -> Choice:
    """Decide which of all pending deliveries in event order to send next."""
    if not pending:
        return Choice(takes_events=True)
    oldest = pending[0]
    order_ends_at = oldest.queued_at + ORDER_PERIOD
    keeps_order = now < order_ends_at
    # If several deliveries are due at the same time, ``min`` returns the oldest one.
    first = oldest if keeps_order else min(pending, key=lambda delivery: delivery.due_at)
    if first.due_at <= now:
        return Choice(first.id)
    if keeps_order:
        return Choice(due_at=min(first.due_at, order_ends_at))
    return Choice(due_at=first.due_at, takes_events=len(pending) < max_pending)


def choose_deliveries(pending: Sequence[Pending], now: datetime, *, limit: int) -> list[int]:
    """Choose deliveries on the assumption that each one succeeds."""
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
    # Read the newest feed position first, because events written between the two reads would
    # otherwise be skipped. If the feed contains no new events for the endpoint, the endpoint's
    # position moves to the end of the feed.
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
    event = query.subquery()
    values = {
        "endpoint_id": literal(endpoint.id),
        "event_id": event.c.id,
        "place": event.c.place,
        "event_type": event.c.type,
        "person_id": event.c.data["user_id"].astext.cast(BigInteger),
    }
    # An event that already has a delivery is queued again, because the owner has requested a
    # replay.
    upsert = (
        insert(WebhookDelivery)
        .from_select(list(values), select(*values.values()))
        .on_conflict_do_update(index_elements=["endpoint_id", "event_id"], set_=REQUEUED_VALUES)
        .returning(WebhookDelivery.place, WebhookDelivery.event_id)
    )
    rows: Sequence[Any] = uow.session.execute(upsert).all()
    last = max((FeedPosition(*row) for row in rows), default=max(newest, position))
    endpoint.place = last.place
    endpoint.event_id = last.id
    return bool(rows)
