"""Builds the content of webhook requests from the events in the feed.

Pressroom doesn't store requests, but builds them again for the owner.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select

from core import clock
from core.errors import webhooks as errors
from models import FeedEvent, User, WebhookDelivery
from services.access.caller import Caller
from services.feed import reading
from services.webhooks import signing, webhook_endpoints
from services.webhooks.deliveries import TEST_EVENT_TYPE
from storage.unit_of_work import UnitOfWork

# The headers that have the same value in all webhook requests.
FIXED_HEADERS = {"Content-Type": "application/json", "User-Agent": "Pressroom-Webhooks/1"}

_LOAD_EVENTS = select(FeedEvent).where(FeedEvent.id.in_(bindparam("ids", expanding=True)))


@dataclass(frozen=True)
class RebuiltRequest:
    """A request without its signature.

    ``body`` is ``None`` and ``headers`` is empty if the event was deleted or the person was erased.
    """

    delivery: WebhookDelivery
    headers: Mapping[str, str]
    body: bytes | None
    is_erased: bool


def load_events(uow: UnitOfWork, deliveries: Sequence[WebhookDelivery]) -> dict[int, Any]:
    """Map ids of deliveries to rendered events, without deleted events."""
    event_ids = [row.event_id for row in deliveries if row.event_id is not None]
    events = uow.session.scalars(_LOAD_EVENTS, {"ids": event_ids}).all()
    event_by_id = {event["id"]: event for event in reading.render_events(uow.session, events)}
    return {
        row.id: _build_test_event(row) if row.event_id is None else event_by_id[row.event_id]
        for row in deliveries
        if row.event_id is None or row.event_id in event_by_id
    }


def get_message_id(delivery: WebhookDelivery) -> str:
    if delivery.event_id is None:
        return f"test_{delivery.id}"
    return signing.build_message_id(delivery.event_id)


def rebuild_request(
    uow: UnitOfWork, caller: Caller, endpoint_id: int, delivery_id: int
) -> RebuiltRequest:
    endpoint = webhook_endpoints.get_endpoint(uow, caller, endpoint_id)
    delivery = uow.session.get(WebhookDelivery, delivery_id)
    if delivery is None or delivery.endpoint_id != endpoint.id:
        raise errors.WEBHOOK_DELIVERY_NOT_FOUND()
    is_erased = _is_erased(uow, delivery.person_id)
    event = None if is_erased else load_events(uow, [delivery]).get(delivery.id)
    headers = {}
    if event is not None:
        headers = {**FIXED_HEADERS, "webhook-id": get_message_id(delivery)}
        if delivery.last_attempt_at is not None:
            headers["webhook-timestamp"] = str(int(delivery.last_attempt_at.timestamp()))
    body = None if event is None else signing.serialise_event(event)
    return RebuiltRequest(delivery, headers, body, is_erased)


def _is_erased(uow: UnitOfWork, person_id: int | None) -> bool:
    query = select(User.id).where(User.id == person_id, User.erased_at.is_not(None))
    return person_id is not None and uow.session.scalar(query) is not None


def _build_test_event(delivery: WebhookDelivery) -> dict[str, Any]:
    return {
        "id": None,
        "type": TEST_EVENT_TYPE,
        "occurred_at": clock.format_timestamp(delivery.created_at),
        "list_id": None,
        "subject": None,
        "data": {},
    }
