"""Webhook endpoints: an owner's events are sent to URLs of theirs. See docs/webhooks.md."""

from fastapi import APIRouter

from api.access.requirements import WebhookKeeper
from api.bodies.json_route import JsonRoute
from api.limits.bulkheads import RECORDS
from api.openapi import refuses
from api.parameters import Cursor, Limit, PathId, StateOf
from api.request_ids import current_request_id
from api.schemas.envelope import Envelope, envelope
from api.schemas.webhook_endpoints import (
    CreatedWebhookEndpoint,
    DeliveriesPagination,
    NewWebhookEndpoint,
    ReplaySince,
    RotatedSecret,
    WebhookDeliveriesPage,
    WebhookDeliveryRecord,
    WebhookEndpointChange,
    WebhookEndpointRecord,
)
from core.refusals.access import AUTH_LOGIN_AGAIN, AUTH_RESTRICTED_CREDENTIAL
from core.refusals.mailing import LIST_NOT_FOUND
from core.refusals.requests import CURSOR_INVALID
from core.refusals.webhooks import (
    WEBHOOK_DELIVERY_NOT_FOUND,
    WEBHOOK_ENDED,
    WEBHOOK_ENDPOINT_NOT_FOUND,
    WEBHOOK_EVENT_GONE,
    WEBHOOK_NOT_ACTIVE,
    WEBHOOK_TOO_MANY,
    WEBHOOK_TOO_MANY_PENDING,
    WEBHOOK_TOO_MANY_SECRETS,
    WEBHOOK_URL_NOT_ALLOWED,
)
from services.webhooks import deliveries, webhook_endpoints
from services.webhooks.webhook_endpoints import EndpointChange
from storage.unit_of_work import UnitOfWork

router = APIRouter(tags=["Webhooks"], route_class=JsonRoute)

_FINDING = (WEBHOOK_ENDPOINT_NOT_FOUND, AUTH_RESTRICTED_CREDENTIAL)
_PATH = "/webhook-endpoints"
_ONE = _PATH + "/{endpoint_id}"


@router.post(
    _PATH,
    responses=refuses(
        WEBHOOK_URL_NOT_ALLOWED,
        WEBHOOK_TOO_MANY,
        LIST_NOT_FOUND,
        AUTH_LOGIN_AGAIN,
        AUTH_RESTRICTED_CREDENTIAL,
    ),
)
async def create_webhook_endpoint(
    state: StateOf, caller: WebhookKeeper, body: NewWebhookEndpoint
) -> Envelope[CreatedWebhookEndpoint]:
    """Have events sent to a URL from now on. The secret is in this answer and never shown again.

    Each event is posted as `{"type", "timestamp", "data"}`, where `data` is the event as
    `GET /events` answers it, signed by Standard Webhooks 1.0. It is sent at least once, by its
    `webhook-id` always the same; any answer but 2xx is tried again for three days. The types of
    keys and grants need a session or an unrestricted key. A session needs a login of the last 15
    minutes; a mail tells the account's person of the endpoint.
    """
    await state.check_receiver(caller.user_id, body.url)

    def make(uow: UnitOfWork) -> CreatedWebhookEndpoint:
        endpoint, secret = webhook_endpoints.make(
            uow,
            state.resources.key_wrapper,
            caller,
            url=body.url,
            types=body.types,
            list_id=body.list_id,
            request_id=current_request_id(),
        )
        return CreatedWebhookEndpoint.of_row(endpoint, secret=secret)

    return envelope(await state.in_unit_of_work(make))


@router.get(_PATH)
@RECORDS.threaded
def list_webhook_endpoints(
    state: StateOf, caller: WebhookKeeper
) -> Envelope[list[WebhookEndpointRecord]]:
    """The caller's endpoints whose types the credential may see, newest first."""
    with state.resources.unit_of_work() as uow:
        found = webhook_endpoints.list_of(uow, caller)
        return envelope([WebhookEndpointRecord.model_validate(each) for each in found])


@router.get(_ONE, responses=refuses(*_FINDING))
@RECORDS.threaded
def read_webhook_endpoint(
    state: StateOf, caller: WebhookKeeper, endpoint_id: PathId
) -> Envelope[WebhookEndpointRecord]:
    """One endpoint of the caller's."""
    with state.resources.unit_of_work() as uow:
        found = webhook_endpoints.get(uow, caller, endpoint_id)
        return envelope(WebhookEndpointRecord.model_validate(found))


@router.patch(
    _ONE, responses=refuses(*_FINDING, WEBHOOK_URL_NOT_ALLOWED, WEBHOOK_ENDED, AUTH_LOGIN_AGAIN)
)
async def change_webhook_endpoint(
    state: StateOf, caller: WebhookKeeper, endpoint_id: PathId, body: WebhookEndpointChange
) -> Envelope[WebhookEndpointRecord]:
    """Change the URL or the types, pause the endpoint, or make it active again.

    An endpoint that is active again gets what happened meanwhile; of a type that is added it gets
    what happens from then on. A session needs a login of the last 15 minutes.
    """
    if body.url is not None:
        await state.check_receiver(caller.user_id, body.url)
    to = EndpointChange(url=body.url, types=body.types, state=body.state)

    def change(uow: UnitOfWork) -> WebhookEndpointRecord:
        return WebhookEndpointRecord.model_validate(
            webhook_endpoints.change(uow, caller, endpoint_id, to, request_id=current_request_id())
        )

    return envelope(await state.in_unit_of_work(change))


@router.delete(_ONE, responses=refuses(*_FINDING))
@RECORDS.threaded
def delete_webhook_endpoint(
    state: StateOf, caller: WebhookKeeper, endpoint_id: PathId
) -> Envelope[int]:
    """Send nothing more to the endpoint, and show it no more."""
    with state.resources.unit_of_work() as uow:
        return envelope(webhook_endpoints.delete(uow, caller, endpoint_id))


@router.post(
    f"{_ONE}/rotate",
    responses=refuses(*_FINDING, WEBHOOK_ENDED, WEBHOOK_TOO_MANY_SECRETS, AUTH_LOGIN_AGAIN),
)
@RECORDS.threaded
def rotate_webhook_secret(
    state: StateOf, caller: WebhookKeeper, endpoint_id: PathId
) -> Envelope[RotatedSecret]:
    """Make a new secret. For 24 hours the former one signs too: `webhook-signature` has both."""
    with state.resources.unit_of_work() as uow:
        wrapper = state.resources.key_wrapper
        return envelope(
            RotatedSecret(secret=webhook_endpoints.rotate(uow, wrapper, caller, endpoint_id))
        )


@router.post(
    f"{_ONE}/test", responses=refuses(*_FINDING, WEBHOOK_NOT_ACTIVE, WEBHOOK_TOO_MANY_PENDING)
)
@RECORDS.threaded
def test_webhook_endpoint(
    state: StateOf, caller: WebhookKeeper, endpoint_id: PathId
) -> Envelope[WebhookDeliveryRecord]:
    """Send an event of the type `webhook.test`, which tells of nothing."""
    with state.resources.unit_of_work() as uow:
        sent = deliveries.send_test(uow, caller, endpoint_id)
        return envelope(WebhookDeliveryRecord.of(sent))


@router.post(f"{_ONE}/replay", responses=refuses(*_FINDING, WEBHOOK_NOT_ACTIVE))
@RECORDS.threaded
def replay_webhook_events(
    state: StateOf, caller: WebhookKeeper, endpoint_id: PathId, body: ReplaySince
) -> Envelope[int]:
    """Send all events again that happened since a time, also those that were delivered: 1, or 0
    when there is none."""
    with state.resources.unit_of_work() as uow:
        return envelope(deliveries.replay(uow, caller, endpoint_id, body.since))


@router.get(f"{_ONE}/deliveries", responses=refuses(*_FINDING, CURSOR_INVALID))
@RECORDS.threaded
def list_webhook_deliveries(
    state: StateOf,
    caller: WebhookKeeper,
    endpoint_id: PathId,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Envelope[WebhookDeliveriesPage]:
    """What became of the events of the last 30 days, newest first, with the last answers."""
    with state.resources.unit_of_work() as uow:
        found = deliveries.page(uow, caller, endpoint_id, limit=limit, cursor=cursor)
        items = [WebhookDeliveryRecord.of(each) for each in found.deliveries]
    pagination = DeliveriesPagination(limit=limit, next_cursor=found.next_cursor)
    return envelope(WebhookDeliveriesPage(pagination=pagination, items=items))


@router.post(
    f"{_ONE}/deliveries/{{delivery_id}}/resend",
    responses=refuses(
        *_FINDING,
        WEBHOOK_DELIVERY_NOT_FOUND,
        WEBHOOK_EVENT_GONE,
        WEBHOOK_NOT_ACTIVE,
        WEBHOOK_TOO_MANY_PENDING,
    ),
)
@RECORDS.threaded
def resend_webhook_delivery(
    state: StateOf, caller: WebhookKeeper, endpoint_id: PathId, delivery_id: PathId
) -> Envelope[WebhookDeliveryRecord]:
    """Send one event again, whatever became of it before."""
    with state.resources.unit_of_work() as uow:
        sent = deliveries.resend(uow, caller, endpoint_id, delivery_id)
        return envelope(WebhookDeliveryRecord.of(sent))
