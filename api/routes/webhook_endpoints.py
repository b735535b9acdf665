"""The API endpoints for webhook endpoints, to which Pressroom sends events, and for deliveries."""

from functools import partial

from fastapi import APIRouter

from api.auth.requirements import WebhookKeeper
from api.openapi import error_responses
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
    """Have events sent to a URL from now on. The secret is in this answer and never shown again.

    Each event is posted as `{"type", "timestamp", "data"}`, where `data` is the event as
    `GET /events` answers it, signed by Standard Webhooks 1.0. It is sent at least once, by its
    `webhook-id` always the same; any answer but 2xx is tried again for three days. The types of
    keys and grants need a session or an unrestricted key. A session needs a login of the last 15
    minutes; a mail tells the account's person of the endpoint.
    """
    await state.check_receiver(caller.user_id, body.url)
    endpoint, secret = await state.in_unit_of_work(
        webhook_endpoints.create_endpoint,
        caller,
        url=body.url,
        types=body.types,
        list_id=body.list_id,
    )
    return build_envelope(schemas.CreatedWebhookEndpoint.of_row(endpoint, secret=secret))


@router.get(_ENDPOINTS_PATH)
def list_webhook_endpoints(
    uow: Transaction, caller: WebhookKeeper
) -> Envelope[list[schemas.WebhookEndpointRecord]]:
    """The caller's endpoints whose types the credential may see, newest first."""
    endpoints = webhook_endpoints.list_endpoints(uow, caller)
    return build_envelope(
        [schemas.WebhookEndpointRecord.model_validate(each) for each in endpoints]
    )


@router.get(_ENDPOINT_PATH, responses=error_responses(*_ENDPOINT_ERRORS))
def read_webhook_endpoint(
    uow: Transaction, caller: WebhookKeeper, endpoint_id: PathId
) -> Envelope[schemas.WebhookEndpointRecord]:
    """Return an endpoint of the caller."""
    endpoint = webhook_endpoints.get_endpoint(uow, caller, endpoint_id)
    return build_envelope(schemas.WebhookEndpointRecord.model_validate(endpoint))


@router.patch(
    _ENDPOINT_PATH,
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
    """Change the URL or the types, pause the endpoint, or make it active again.

    An endpoint that is active again gets the events that it missed. If a type is added, the
    endpoint gets later events of this type. A session needs a login of the last 15 minutes.
    """
    if body.url is not None:
        await state.check_receiver(caller.user_id, body.url)
    change = EndpointChange(url=body.url, types=body.types, state=body.state)
    endpoint = await state.in_unit_of_work(
        webhook_endpoints.change_endpoint, caller, endpoint_id, change
    )
    return build_envelope(schemas.WebhookEndpointRecord.model_validate(endpoint))


@router.delete(_ENDPOINT_PATH, responses=error_responses(*_ENDPOINT_ERRORS))
def delete_webhook_endpoint(
    uow: Transaction, caller: WebhookKeeper, endpoint_id: PathId
) -> Envelope[int]:
    """Send nothing more to the endpoint, and show it no more."""
    return build_envelope(webhook_endpoints.delete_endpoint(uow, caller, endpoint_id))


@router.post(
    f"{_ENDPOINT_PATH}/rotate",
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
    """Make a new secret. For 24 hours the former one signs too: `webhook-signature` has both."""
    secret = webhook_endpoints.rotate_secret(uow, caller, endpoint_id)
    return build_envelope(schemas.RotatedSecret(secret=secret))


@router.post(
    f"{_ENDPOINT_PATH}/test",
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
    """Send an event of the type `webhook.test`. Nothing has changed when it is sent."""
    delivery = deliveries.send_test(uow, caller, endpoint_id)
    return build_envelope(schemas.WebhookDeliveryRecord.of(delivery))


@router.post(
    f"{_ENDPOINT_PATH}/replay",
    responses=error_responses(
        *_ENDPOINT_ERRORS, webhooks.WEBHOOK_NOT_ACTIVE, access.QUOTA_EXCEEDED
    ),
)
def replay_webhook_events(
    uow: Transaction, caller: WebhookKeeper, endpoint_id: PathId, body: schemas.ReplaySince
) -> Envelope[int]:
    """Send all events since a time again, including delivered events.

    Returns 1, or 0 if there is no such event.
    """
    return build_envelope(deliveries.replay_events(uow, caller, endpoint_id, body.since))


@router.get(
    f"{_ENDPOINT_PATH}/deliveries",
    responses=error_responses(*_ENDPOINT_ERRORS, requests.CURSOR_INVALID),
)
def list_webhook_deliveries(
    uow: Transaction,
    caller: WebhookKeeper,
    endpoint_id: PathId,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Envelope[schemas.WebhookDeliveriesPage]:
    """Return the deliveries of the last 30 days, newest first, with the last answers."""
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
    """Send one event again, even if it was delivered."""
    delivery = deliveries.resend_delivery(uow, caller, endpoint_id, delivery_id)
    return build_envelope(schemas.WebhookDeliveryRecord.of(delivery))
