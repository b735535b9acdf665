"""Lists deliveries, and sends events again on request."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Select, func, select, update

from core.errors import webhooks as errors
from core.settings.notations import PlanQuota
from models import DeliveryStatus, FeedEvent, WebhookDelivery, WebhookEndpoint
from services import paging
from services.access import quotas
from services.access.caller import Caller
from services.feed.reading import FeedPosition, find_place_before
from services.paging import PageOfRows, PageRequest
from services.webhooks import webhook_endpoints
from storage.unit_of_work import UnitOfWork

TEST_EVENT_TYPE = "webhook.test"
# An endpoint with this many pending deliveries gets no new events, because a worker reads all
# pending deliveries before each attempt.
MAX_PENDING = 1_000
# For an endpoint with this many pending deliveries, the owner can't request test events or resend
# events. ``MAX_PENDING_REQUESTED`` exceeds ``MAX_PENDING``, so that an owner can resend events to
# an endpoint with many pending deliveries.
MAX_PENDING_REQUESTED = 2 * MAX_PENDING
# The maximum number of events to count before a replay, because counting many events is slow.
MAX_COUNTED_EVENTS = 1_000
# The values that make a delivery pending again and restart its retry schedule.
REQUEUED_VALUES = {
    "status": DeliveryStatus.PENDING,
    "round_attempts": 0,
    "queued_at": func.now(),
    "due_at": func.now(),
    "delivered_at": None,
}


@dataclass(frozen=True)
class EventCount:
    """The number of events that a replay would send, or a lower bound."""

    count: int
    is_exact: bool


def list_deliveries(
    uow: UnitOfWork, caller: Caller, endpoint_id: int, request: PageRequest
) -> PageOfRows[WebhookDelivery]:
    endpoint = webhook_endpoints.get_endpoint(uow, caller, endpoint_id)
    query = select(WebhookDelivery).where(WebhookDelivery.endpoint_id == endpoint.id)
    return paging.read_page(
        uow, paging.select_page_by_id(query, WebhookDelivery.id, request), request
    )


def send_test(uow: UnitOfWork, caller: Caller, endpoint_id: int) -> WebhookDelivery:
    endpoint = webhook_endpoints.lock_active_endpoint(uow, caller, endpoint_id)
    _require_room(uow, endpoint)
    _require_storage(uow, caller)
    delivery = WebhookDelivery(endpoint_id=endpoint.id, event_type=TEST_EVENT_TYPE)
    uow.session.add(delivery)
    webhook_endpoints.wake_endpoint(endpoint)
    uow.session.flush()
    return delivery


def resend_delivery(
    uow: UnitOfWork, caller: Caller, endpoint_id: int, delivery_id: int
) -> WebhookDelivery:
    endpoint = webhook_endpoints.lock_active_endpoint(uow, caller, endpoint_id)
    is_this = (WebhookDelivery.id == delivery_id, WebhookDelivery.endpoint_id == endpoint.id)
    delivery = uow.session.scalar(select(WebhookDelivery).where(*is_this).with_for_update())
    if delivery is None:
        raise errors.WEBHOOK_DELIVERY_NOT_FOUND()
    if delivery.event_id is not None and uow.session.get(FeedEvent, delivery.event_id) is None:
        raise errors.WEBHOOK_EVENT_GONE()
    if delivery.status != DeliveryStatus.PENDING:
        _require_room(uow, endpoint)
    statement = update(WebhookDelivery).where(*is_this).values(**REQUEUED_VALUES)
    uow.session.execute(statement.execution_options(synchronize_session=False))
    webhook_endpoints.wake_endpoint(endpoint)
    uow.session.flush()
    uow.session.refresh(delivery)
    return delivery


def retry_pending(uow: UnitOfWork, caller: Caller, endpoint_id: int) -> None:
    """Make all pending deliveries due now. The time at which they are given up doesn't change."""
    endpoint = webhook_endpoints.lock_active_endpoint(uow, caller, endpoint_id)
    statement = update(WebhookDelivery).where(
        *_select_pending(endpoint.id), WebhookDelivery.due_at > func.now()
    )
    statement = statement.values(due_at=func.now())
    uow.session.execute(statement.execution_options(synchronize_session=False))
    webhook_endpoints.wake_endpoint(endpoint)


def count_pending(uow: UnitOfWork, endpoint_id: int) -> int:
    """Count at most ``MAX_PENDING_REQUESTED`` pending deliveries."""
    pending = select(WebhookDelivery.id).where(*_select_pending(endpoint_id))
    bounded = pending.limit(MAX_PENDING_REQUESTED).subquery()
    return uow.session.scalar(select(func.count()).select_from(bounded)) or 0


def _select_pending(endpoint_id: int) -> list[ColumnElement[bool]]:
    """Return the conditions that select an endpoint's pending deliveries."""
    table = WebhookDelivery
    return [table.endpoint_id == endpoint_id, table.status == DeliveryStatus.PENDING]


def _require_room(uow: UnitOfWork, endpoint: WebhookEndpoint) -> None:
    if count_pending(uow, endpoint.id) >= MAX_PENDING_REQUESTED:
        raise errors.WEBHOOK_TOO_MANY_PENDING(most=MAX_PENDING_REQUESTED)


def replay_events(uow: UnitOfWork, caller: Caller, endpoint_id: int, since: datetime) -> int:
    """Resend the events since ``since`` in the original order, or return 0 if there are none."""
    endpoint = webhook_endpoints.lock_active_endpoint(uow, caller, endpoint_id)
    _require_storage(uow, caller)
    # Start the search only a little before ``since``, so that the queries read few older events.
    place = find_place_before(uow.session, since)
    first_by_type = [
        uow.session.scalar(build_first_event_query(_select_events(endpoint, kind), place, since))
        for kind in endpoint.types
    ]
    positions = [FeedPosition.of_event(event) for event in first_by_type if event is not None]
    if not positions:
        return 0
    first = min(positions)
    webhook_endpoints.rewind_endpoint(endpoint, FeedPosition(first.place, first.id - 1))
    webhook_endpoints.wake_endpoint(endpoint)
    return 1


def _require_storage(uow: UnitOfWork, caller: Caller) -> None:
    quotas.require_quota(
        uow, caller.account_id, PlanQuota.STORAGE_MB, more=quotas.count_row_bytes()
    )


def build_first_event_query(
    events: Collection[ColumnElement[bool]], place: int, since: datetime
) -> Select[FeedEvent]:
    """Find the first event since ``since``, searching from ``place``."""
    query = select(FeedEvent).where(
        *events, FeedEvent.place >= place, FeedEvent.occurred_at >= since
    )
    return query.order_by(FeedEvent.place, FeedEvent.id).limit(1)


def count_events_since(
    uow: UnitOfWork, caller: Caller, endpoint_id: int, since: datetime
) -> EventCount:
    endpoint = webhook_endpoints.get_endpoint(uow, caller, endpoint_id)
    count = 0
    for kind in endpoint.types:
        # Read at most ``MAX_COUNTED_EVENTS`` + 1 events, so that an old ``since`` doesn't make the
        # count slow.
        newest = select(FeedEvent.occurred_at).where(*_select_events(endpoint, kind))
        newest = newest.order_by(FeedEvent.place.desc(), FeedEvent.id.desc())
        bounded = newest.limit(MAX_COUNTED_EVENTS + 1).subquery()
        query = select(func.count()).where(bounded.c.occurred_at >= since)
        count += uow.session.scalar(query) or 0
    return EventCount(min(count, MAX_COUNTED_EVENTS), is_exact=count <= MAX_COUNTED_EVENTS)


def _select_events(endpoint: WebhookEndpoint, kind: str) -> list[ColumnElement[bool]]:
    of_list = [] if endpoint.list_id is None else [FeedEvent.list_id == endpoint.list_id]
    return [FeedEvent.user_id == endpoint.user_id, FeedEvent.type == kind, *of_list]
