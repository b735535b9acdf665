"""The API endpoints for webhook endpoints, to which Pressroom sends events, and for deliveries."""

from functools import partial

from fastapi import APIRouter

from api.auth.requirements import WebhookKeeper
from api.openapi.declarations import error_responses
from api.paging import Cursor, Limit
from api.record_ids import PathId
from api.route_classes import JsonRoute
from api.schemas import webhook_endpoints as schemas
from api.schemas.envelope import Envelope, build_envelope, fill_page
from api.state import StateOf, Transaction
from core.errors import access, mailing, requests, webhooks
from services.paging import PageRequest
from services.webhooks import deliveries, webhook_endpoints
from services.webhooks.webhook_endpoints import EndpointChange

_ENDPOINTS_PATH = "/webhook-endpoints"
_ENDPOINT_PATH = _ENDPOINTS_PATH + "/{endpoint_id}"
_ENDPOINT_ERRORS = (webhooks.WEBHOOK_ENDPOINT_NOT_FOUND, access.AUTH_RESTRICTED_CREDENTIAL)

router = APIRouter(tags=["Webhooks"], route_class=JsonRoute)


@router.post(
    _ENDPOINTS_PATH,
    summary="Create a webhook endpoint",
    responses=error_responses(
        webhooks.WEBHOOK_URL_NOT_ALLOWED,
        webhooks.WEBHOOK_TOO_MANY,
        mailing.LIST_NOT_FOUND,
        access.AUTH_LOGIN_AGAIN,
        access.AUTH_RESTRICTED_CREDENTIAL,
    ),
)
async def create_webhook_endpoint(
    state: StateOf, caller: WebhookKeeper, body: schemas.NewWebhookEndpoint
) -> Envelope[schemas.CreatedWebhookEndpoint]:
    """Create a webhook endpoint, which receives new events. Only the response to this call contains
    the endpoint's secret.

    Each event is sent as a POST request with the body `{"type", "timestamp", "data"}`, signed as
    Standard Webhooks 1.0 defines. The format of `data` is the same as in `GET /events`. Events are
    delivered at least once, with the same `webhook-id` each time. If the response is not 2xx, the
    delivery is retried for three days. Only callers with a session cookie or an unrestricted API
    key can choose event types about API keys and OAuth grants. Callers with a session cookie must
    have logged in within the last 15 minutes. The account's user is notified by e-mail.
    """
    await state.check_receiver(caller.account_id, body.url)
    endpoint, secret = await state.in_unit_of_work(
        webhook_endpoints.create_endpoint,
        caller,
        url=body.url,
        types=body.types,
        list_id=body.list_id,
    )
    return build_envelope(schemas.CreatedWebhookEndpoint.of_row(endpoint, secret=secret))


@router.get(_ENDPOINTS_PATH, summary="List all webhook endpoints")
def list_webhook_endpoints(
    uow: Transaction, caller: WebhookKeeper
) -> Envelope[list[schemas.WebhookEndpointRecord]]:
    """List your webhook endpoints, newest first. The list contains only endpoints whose event types
    your credential can read.
    """
    endpoints = webhook_endpoints.list_endpoints(uow, caller)
    return build_envelope(
        [schemas.WebhookEndpointRecord.model_validate(each) for each in endpoints]
    )


@router.get(
    _ENDPOINT_PATH,
    summary="Retrieve a webhook endpoint",
    responses=error_responses(*_ENDPOINT_ERRORS),
)
def read_webhook_endpoint(
    uow: Transaction, caller: WebhookKeeper, endpoint_id: PathId
) -> Envelope[schemas.WebhookEndpointRecord]:
    """Retrieve one of your webhook endpoints."""
    endpoint = webhook_endpoints.get_endpoint(uow, caller, endpoint_id)
    return build_envelope(schemas.WebhookEndpointRecord.model_validate(endpoint))


@router.patch(
    _ENDPOINT_PATH,
    summary="Update a webhook endpoint",
    responses=error_responses(
        *_ENDPOINT_ERRORS,
        webhooks.WEBHOOK_URL_NOT_ALLOWED,
        webhooks.WEBHOOK_ENDED,
        access.AUTH_LOGIN_AGAIN,
    ),
)
async def change_webhook_endpoint(
    state: StateOf, caller: WebhookKeeper, endpoint_id: PathId, body: schemas.WebhookEndpointChange
) -> Envelope[schemas.WebhookEndpointRecord]:
    """Update a webhook endpoint's URL or event types. The call can also pause or resume deliveries.

    A resumed endpoint receives the events that it missed. If you add an event type, the endpoint
    receives only new events of this type. Callers with a session cookie must have logged in within
    the last 15 minutes.
    """
    if body.url is not None:
        await state.check_receiver(caller.account_id, body.url)
    change = EndpointChange(url=body.url, types=body.types, state=body.state)
    endpoint = await state.in_unit_of_work(
        webhook_endpoints.change_endpoint, caller, endpoint_id, change
    )
    return build_envelope(schemas.WebhookEndpointRecord.model_validate(endpoint))


@router.delete(
    _ENDPOINT_PATH,
    summary="Delete a webhook endpoint",
    responses=error_responses(*_ENDPOINT_ERRORS),
)
def delete_webhook_endpoint(
    uow: Transaction, caller: WebhookKeeper, endpoint_id: PathId
) -> Envelope[int]:
    """Delete a webhook endpoint. Pressroom no longer sends events to its URL."""
    return build_envelope(webhook_endpoints.delete_endpoint(uow, caller, endpoint_id))


@router.post(
    f"{_ENDPOINT_PATH}/rotate",
    summary="Rotate a webhook secret",
    responses=error_responses(
        *_ENDPOINT_ERRORS,
        webhooks.WEBHOOK_ENDED,
        webhooks.WEBHOOK_TOO_MANY_SECRETS,
        access.AUTH_LOGIN_AGAIN,
    ),
)
def rotate_webhook_secret(
    uow: Transaction, caller: WebhookKeeper, endpoint_id: PathId
) -> Envelope[schemas.RotatedSecret]:
    """Create a new secret for an endpoint. For 24 hours, `webhook-signature` contains signatures
    with the new and the previous secret.
    """
    secret = webhook_endpoints.rotate_secret(uow, caller, endpoint_id)
    return build_envelope(schemas.RotatedSecret(secret=secret))


@router.post(
    f"{_ENDPOINT_PATH}/test",
    summary="Send a test event",
    responses=error_responses(
        *_ENDPOINT_ERRORS,
        webhooks.WEBHOOK_NOT_ACTIVE,
        webhooks.WEBHOOK_TOO_MANY_PENDING,
        access.QUOTA_EXCEEDED,
    ),
)
def test_webhook_endpoint(
    uow: Transaction, caller: WebhookKeeper, endpoint_id: PathId
) -> Envelope[schemas.WebhookDeliveryRecord]:
    """Send an event of the type `webhook.test` to the endpoint."""
    delivery = deliveries.send_test(uow, caller, endpoint_id)
    return build_envelope(schemas.WebhookDeliveryRecord.of(delivery))


@router.post(
    f"{_ENDPOINT_PATH}/replay",
    summary="Replay events",
    responses=error_responses(
        *_ENDPOINT_ERRORS, webhooks.WEBHOOK_NOT_ACTIVE, access.QUOTA_EXCEEDED
    ),
)
def replay_webhook_events(
    uow: Transaction, caller: WebhookKeeper, endpoint_id: PathId, body: schemas.ReplaySince
) -> Envelope[int]:
    """Send all events since a chosen time again, including delivered events.

    Returns 1, or 0 if there is no such event.
    """
    return build_envelope(deliveries.replay_events(uow, caller, endpoint_id, body.since))


@router.get(
    f"{_ENDPOINT_PATH}/deliveries",
    summary="List webhook deliveries",
    responses=error_responses(*_ENDPOINT_ERRORS, requests.CURSOR_INVALID),
)
def list_webhook_deliveries(
    uow: Transaction,
    caller: WebhookKeeper,
    endpoint_id: PathId,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Envelope[schemas.WebhookDeliveriesPage]:
    """List the deliveries of the last 30 days, newest first, with the last responses."""
    read = partial(deliveries.list_deliveries, uow, caller, endpoint_id)
    page = fill_page(
        PageRequest(limit, cursor=cursor),
        read,
        lambda rows: [*map(schemas.WebhookDeliveryRecord.of, rows)],
    )
    pagination = schemas.DeliveriesPagination(limit=limit, next_cursor=page.next_cursor)
    return build_envelope(schemas.WebhookDeliveriesPage(pagination=pagination, items=page.rows))


@router.post(
    f"{_ENDPOINT_PATH}/deliveries/{{delivery_id}}/resend",
    summary="Resend an event",
    responses=error_responses(
        *_ENDPOINT_ERRORS,
        webhooks.WEBHOOK_DELIVERY_NOT_FOUND,
        webhooks.WEBHOOK_EVENT_GONE,
        webhooks.WEBHOOK_NOT_ACTIVE,
        webhooks.WEBHOOK_TOO_MANY_PENDING,
    ),
)
def resend_webhook_delivery(
    uow: Transaction, caller: WebhookKeeper, endpoint_id: PathId, delivery_id: PathId
) -> Envelope[schemas.WebhookDeliveryRecord]:
    """Send an event again, even if the event was delivered."""
    delivery = deliveries.resend_delivery(uow, caller, endpoint_id, delivery_id)
    return build_envelope(schemas.WebhookDeliveryRecord.of(delivery))
