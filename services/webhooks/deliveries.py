"""The deliveries of events to an endpoint, and their sending once more."""

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
from services.feed.reading import FeedPosition, place_near
from services.paging import PageOfRows, PageRequest
from services.webhooks import webhook_endpoints
from storage.unit_of_work import UnitOfWork

TEST_TYPE = "webhook.test"
# The unfinished deliveries at which no more events become any, and at which none are added that an
# owner asks for: those have room of their own. All of an endpoint's are read for each try.
MAX_PENDING = 1_000
MAX_PENDING_ASKED_FOR = 2 * MAX_PENDING
# Beyond that a number of events that are sent again need not be exact.
MAX_COUNTED = 1_000


@dataclass(frozen=True)
class EventCount:
    """
    Attributes:
        is_exact: otherwise there are more than ``count``.
    """

    count: int
    is_exact: bool


def page(
    uow: UnitOfWork, caller: Caller, endpoint_id: int, wanted: PageRequest
) -> PageOfRows[WebhookDelivery]:
    """The endpoint's deliveries, newest first; raises as ``webhook_endpoints.get``."""
    endpoint = webhook_endpoints.get(uow, caller, endpoint_id)
    query = select(WebhookDelivery).where(WebhookDelivery.endpoint_id == endpoint.id)
    return paging.read(uow, paging.by_id(query, WebhookDelivery.id, wanted), wanted)


def send_test(uow: UnitOfWork, caller: Caller, endpoint_id: int) -> WebhookDelivery:
    """Send an event that tells of nothing. Raises as ``resend`` does, and ``quota.exceeded``."""
    endpoint = webhook_endpoints.lock_active(uow, caller, endpoint_id)
    _require_room(uow, endpoint)
    _require_storage(uow, caller)
    delivery = WebhookDelivery(endpoint_id=endpoint.id, event_type=TEST_TYPE)
    uow.session.add(delivery)
    webhook_endpoints.wake(endpoint)
    uow.session.flush()
    return delivery


def resend(uow: UnitOfWork, caller: Caller, endpoint_id: int, delivery_id: int) -> WebhookDelivery:
    """Send an event again, whatever became of it before.

    Raises ``webhook.delivery_not_found``, ``webhook.event_gone``, ``webhook.not_active``,
    ``webhook.too_many_pending`` and what ``webhook_endpoints.get`` raises.
    """
    endpoint = webhook_endpoints.lock_active(uow, caller, endpoint_id)
    mine = WebhookDelivery.id == delivery_id, WebhookDelivery.endpoint_id == endpoint.id
    delivery = uow.session.scalar(select(WebhookDelivery).where(*mine).with_for_update())
    if delivery is None:
        raise errors.WEBHOOK_DELIVERY_NOT_FOUND()
    if delivery.event_id is not None and uow.session.get(FeedEvent, delivery.event_id) is None:
        raise errors.WEBHOOK_EVENT_GONE()
    if delivery.status != DeliveryStatus.PENDING:
        _require_room(uow, endpoint)
    again = update(WebhookDelivery).where(*mine).values(**AFRESH)
    uow.session.execute(again.execution_options(synchronize_session=False))
    webhook_endpoints.wake(endpoint)
    uow.session.flush()
    uow.session.refresh(delivery)
    return delivery


def _require_storage(uow: UnitOfWork, caller: Caller) -> None:
    quotas.require(uow, caller.user_id, PlanQuota.STORAGE_MB, more=quotas.row_bytes())


def _require_room(uow: UnitOfWork, endpoint: WebhookEndpoint) -> None:
    """Raises ``webhook.too_many_pending``; the endpoint is locked."""
    row, most = WebhookDelivery, MAX_PENDING_ASKED_FOR
    is_pending = row.endpoint_id == endpoint.id, row.status == DeliveryStatus.PENDING
    pending = select(row.id).where(*is_pending)
    found = select(func.count()).select_from(pending.limit(most).subquery())
    if (uow.session.scalar(found) or 0) >= most:
        raise errors.WEBHOOK_TOO_MANY_PENDING(most=most)


def replay(uow: UnitOfWork, caller: Caller, endpoint_id: int, since: datetime) -> int:
    """Send all events again that happened since then and are kept, in their order.

    Returns 1, or 0 when there are none. Raises ``webhook.not_active``, ``quota.exceeded`` and what
    ``webhook_endpoints.get`` raises.
    """
    endpoint = webhook_endpoints.lock_active(uow, caller, endpoint_id)
    _require_storage(uow, caller)
    # A look into an index for each type, which passes over no more than the events of some hours.
    place = place_near(uow.session, since)
    found = [
        uow.session.scalar(first_since(_events_for(endpoint, kind), place, since))
        for kind in endpoint.types
    ]
    firsts = [FeedPosition.of_event(event) for event in found if event is not None]
    if not firsts:
        return 0
    first = min(firsts)
    webhook_endpoints.go_back(endpoint, FeedPosition(first.place, first.id - 1))
    webhook_endpoints.wake(endpoint)
    return 1


def count_since(uow: UnitOfWork, caller: Caller, endpoint_id: int, since: datetime) -> EventCount:
    """How many events ``replay`` would send again; raises what ``webhook_endpoints.get`` raises."""
    endpoint = webhook_endpoints.get(uow, caller, endpoint_id)
    found = 0
    for kind in endpoint.types:
        # This many of the newest are looked at, however many there are and however old `since` is.
        newest = select(FeedEvent.occurred_at).where(*_events_for(endpoint, kind))
        newest = newest.order_by(FeedEvent.place.desc(), FeedEvent.id.desc())
        looked_at = newest.limit(MAX_COUNTED + 1).subquery()
        counted = select(func.count()).where(looked_at.c.occurred_at >= since)
        found += uow.session.scalar(counted) or 0
    return EventCount(min(found, MAX_COUNTED), is_exact=found <= MAX_COUNTED)


# A delivery whose tries begin anew.
AFRESH = {
    "status": DeliveryStatus.PENDING,
    "round_attempts": 0,
    "queued_at": func.now(),
    "due_at": func.now(),
    "delivered_at": None,
}


def first_since(
    events: Collection[ColumnElement[bool]], place: int, since: datetime
) -> Select[FeedEvent]:
    """The first of these events that happened since then, looked for from this place on."""
    happened = FeedEvent.place >= place, FeedEvent.occurred_at >= since
    query = select(FeedEvent).where(*events, *happened)
    return query.order_by(FeedEvent.place, FeedEvent.id).limit(1)


def _events_for(endpoint: WebhookEndpoint, kind: str) -> list[ColumnElement[bool]]:
    """The events of one type that the endpoint gets."""
    of_list = [] if endpoint.list_id is None else [FeedEvent.list_id == endpoint.list_id]
    return [FeedEvent.user_id == endpoint.user_id, FeedEvent.type == kind, *of_list]
