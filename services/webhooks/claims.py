"""Claims the next deliveries of a webhook endpoint.

A claim counts the tries and says when the next ones would be, so that a process that dies has made
each of them like any other: nothing is lost, and nothing is sent for ever.
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
from services.webhooks.deliveries import AFRESH, MAX_PENDING, TEST_TYPE
from services.webhooks.signing import message_id_of
from storage.unit_of_work import UnitOfWork

# The pauses grow for an hour and last for three days. Deliveries keep the order of their events
# while the oldest one has waited for less than a minute; after that, one that fails holds up no
# other.

# After the first try, the second one and so on.
FIRST_PAUSES = tuple(timedelta(seconds=each) for each in (5, 30, 120, 600, 1800, 3600))
LATER_PAUSE = timedelta(hours=3)
IN_ORDER_FOR = timedelta(minutes=1)
# Deliveries that failed together don't return together.
_JITTER = 0.1
# Events that become deliveries at once.
_MAX_TAKEN_EVENTS = 100


class Pending(NamedTuple):
    """A delivery that is not done."""

    id: int
    queued_at: datetime
    due_at: datetime


@dataclass(frozen=True)
class Choice:
    """
    Attributes:
        delivery_id: what to send now.
        due_at: when to look again, where there is nothing to send now.
        takes_events: whether new events may become deliveries now.
    """

    delivery_id: int | None = None
    due_at: datetime | None = None
    takes_events: bool = False


def pause_after(attempts: int) -> timedelta:
    """The pause after so many tries."""
    pause = FIRST_PAUSES[attempts - 1] if attempts <= len(FIRST_PAUSES) else LATER_PAUSE
    return pause * random.uniform(1, 1 + _JITTER)  # noqa: S311 - no secret


def choose(pending: Sequence[Pending], now: datetime, *, max_pending: int) -> Choice:
    """``pending``: all of an endpoint's, in the order of their events."""
    if not pending:
        return Choice(takes_events=True)
    oldest = pending[0]
    order_ends_at = oldest.queued_at + IN_ORDER_FOR
    keeps_order = now < order_ends_at
    # The delivery of the first event, if several are due at the same time.
    first = oldest if keeps_order else min(pending, key=lambda each: each.due_at)
    if first.due_at <= now:
        return Choice(first.id)
    if keeps_order:
        return Choice(due_at=min(first.due_at, order_ends_at))
    return Choice(due_at=first.due_at, takes_events=len(pending) < max_pending)


def choose_several(pending: Sequence[Pending], now: datetime, *, most: int) -> list[int]:
    """Return what ``choose`` would choose one after the other, each delivered before the next."""
    left, chosen = list(pending), list[int]()
    while (
        len(chosen) < most and (found := choose(left, now, max_pending=0).delivery_id) is not None
    ):
        chosen.append(found)
        left = [each for each in left if each.id != found]
    return chosen


@dataclass(frozen=True)
class Message:
    """A try, as it goes out; its delivery is as before the try was counted."""

    delivery: WebhookDelivery
    url: str
    body: bytes
    secrets: list[bytes]

    @property
    def id(self) -> str:
        event_id = self.delivery.event_id
        return f"test_{self.delivery.id}" if event_id is None else message_id_of(event_id)


def claim(uow: UnitOfWork, endpoint: WebhookEndpoint, *, most: int) -> list[Message]:
    """The next tries of a locked endpoint, counted; without any, the endpoint knows when."""
    while True:
        deliveries = _take(uow, endpoint, most)
        if not deliveries:
            return []
        asked = [each.event_id for each in deliveries if each.event_id is not None]
        events = uow.session.scalars(select(FeedEvent).where(FeedEvent.id.in_(asked))).all()
        there = {event["id"]: event for event in reading.show(uow.session, events)}
        # The event of each delivery, as callers of the API see it now, unless it is kept no longer.
        shown = {
            each.id: _test_event(each) if each.event_id is None else there[each.event_id]
            for each in deliveries
            if each.event_id is None or each.event_id in there
        }
        kept = [each for each in deliveries if each.id in shown]
        for gone in (each for each in deliveries if each.id not in shown):
            gone.status, gone.error = DeliveryStatus.FAILED, "The event is no longer kept."
        secrets = signing.live_secrets(uow, endpoint.id) if kept else []
        _count(uow, kept)
        if kept:
            url, body_of = endpoint.url, signing.body_of
            return [Message(each, url, body_of(shown[each.id]), secrets) for each in kept]


def give_back(uow: UnitOfWork, messages: Iterable[Message]) -> None:
    """Undo the count of tries that were not made, of a locked endpoint."""
    row = WebhookDelivery
    for before in (each.delivery for each in messages):
        as_before = {
            "attempts": row.attempts - 1,
            # Its owner may have asked for it anew meanwhile.
            "round_attempts": func.greatest(row.round_attempts - 1, 0),
            "due_at": func.least(row.due_at, before.due_at),
            "last_attempt_at": before.last_attempt_at,
        }
        uow.session.execute(update(row).where(row.id == before.id).values(**as_before))


def _take(uow: UnitOfWork, endpoint: WebhookEndpoint, most: int) -> list[WebhookDelivery]:
    """The deliveries to try now; without any, the endpoint knows when."""
    pending, now = _pending(uow, endpoint)
    choice = choose(pending, now, max_pending=MAX_PENDING)
    if choice.delivery_id is None and choice.takes_events and _take_events(uow, endpoint):
        pending, now = _pending(uow, endpoint)
        choice = choose(pending, now, max_pending=MAX_PENDING)
    # A process that dies after a claim leaves an endpoint that is looked at again.
    endpoint.due_at = choice.due_at if choice.delivery_id is None else now
    endpoint.is_held = not choice.takes_events
    if choice.delivery_id is None:
        return []
    ids = choose_several(pending, now, most=most)
    row = WebhookDelivery
    found = {each.id: each for each in uow.session.scalars(select(row).where(row.id.in_(ids)))}
    return [found[each] for each in ids if each in found]


def _pending(uow: UnitOfWork, endpoint: WebhookEndpoint) -> tuple[list[Pending], datetime]:
    row = WebhookDelivery
    query = select(row.id, row.queued_at, row.due_at)
    query = query.where(row.endpoint_id == endpoint.id, row.status == DeliveryStatus.PENDING)
    query = query.order_by(row.queued_at, row.place, row.event_id, row.id)
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
            "due_at": func.now() + pause_after(tries + 1),
        }
        of_them = update(row).where(row.id.in_(ids)).values(**counted)
        uow.session.execute(of_them.execution_options(synchronize_session=False))


def _take_events(uow: UnitOfWork, endpoint: WebhookEndpoint) -> bool:
    """Make deliveries of the next events; whether there were any."""
    # Read before the events are: all up to here are seen, if there is none.
    newest = newest_position(uow.session)
    position = webhook_endpoints.position_of(endpoint)
    query = reading.next_events(
        endpoint.user_id,
        position,
        types=webhook_endpoints.known_types(endpoint),
        later=webhook_endpoints.later_starts(endpoint),
        list_id=endpoint.list_id,
        limit=_MAX_TAKEN_EVENTS,
    )
    events = uow.session.scalars(query).all()
    last = FeedPosition.of_event(events[-1]) if events else max(newest, position)
    endpoint.place, endpoint.event_id = last.place, last.id
    if not events:
        return False
    # Deliveries that are there are sent once more: their owner asked for it.
    new = insert(WebhookDelivery).values(endpoint_id=endpoint.id)
    again = new.on_conflict_do_update(index_elements=["endpoint_id", "event_id"], set_=AFRESH)
    rows = [
        {
            "event_id": event.id,
            "place": event.place,
            "event_type": event.type,
            "person_id": event.data.get("user_id"),
        }
        for event in events
    ]
    uow.session.execute(again, rows)
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
