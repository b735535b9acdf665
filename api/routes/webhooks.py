from functools import partial

from fastapi import APIRouter, Request

from api.auth.requirements import UNLIMITED, WebhookKeeper
from api.bodies.json_bodies import JsonRoute
from api.limits.bulkheads import MONEY
from api.openapi import refuses
from api.parameters import Cursor, Limit, PathId, StateOf, Transaction
from api.schemas import webhooks as schemas
from api.schemas.envelope import Envelope, envelope, filled
from core.errors import access, mailing, money, requests, webhooks
from services.credits import payment_webhooks
from services.paging import PageRequest
from services.webhooks import deliveries, webhook_endpoints
from services.webhooks.webhook_endpoints import EndpointChange

stripe_router = APIRouter(tags=["Credits"], dependencies=[UNLIMITED])

_SIGNATURE = {
    "name": "Stripe-Signature",
    "in": "header",
    "required": True,
    "schema": {"type": "string"},
}


@stripe_router.post(
    "/webhooks/stripe",
    responses=refuses(
        money.WEBHOOK_SIGNATURE_INVALID,
        money.WEBHOOK_UNREADABLE,
        requests.BODY_TOO_LARGE.filled(most="1 MB"),
        requests.SERVICE_UNAVAILABLE,
        money.TOPUP_NO_CHANNEL,
    ),
    openapi_extra={
        "parameters": [_SIGNATURE],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "description": "An event as Stripe sends it",
                        "examples": [{"id": "evt_1NG8Du2eZvKYlo2C", "type": "charge.refunded"}],
                    }
                }
            },
        },
    },
)
async def receive_stripe_webhook(request: Request, state: StateOf) -> Envelope[int]:
    """Receive an event of Stripe. It may come twice, late, and before the events that led to it."""
    body = await request.body()
    signature = request.headers.get("stripe-signature", "")
    await MONEY.run(
        payment_webhooks.receive_event, state.resources, state.payments, body, signature
    )
    return envelope(1)


router = APIRouter(tags=["Webhooks"], route_class=JsonRoute)

_FINDING = (webhooks.WEBHOOK_ENDPOINT_NOT_FOUND, access.AUTH_RESTRICTED_CREDENTIAL)
_PATH = "/webhook-endpoints"
_ONE = _PATH + "/{endpoint_id}"


@router.post(
    _PATH,
    responses=refuses(
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
    return envelope(schemas.CreatedWebhookEndpoint.of_row(endpoint, secret=secret))


@router.get(_PATH)
def list_webhook_endpoints(
    uow: Transaction, caller: WebhookKeeper
) -> Envelope[list[schemas.WebhookEndpointRecord]]:
    """The caller's endpoints whose types the credential may see, newest first."""
    found = webhook_endpoints.list_endpoints(uow, caller)
    return envelope([schemas.WebhookEndpointRecord.model_validate(each) for each in found])


@router.get(_ONE, responses=refuses(*_FINDING))
def read_webhook_endpoint(
    uow: Transaction, caller: WebhookKeeper, endpoint_id: PathId
) -> Envelope[schemas.WebhookEndpointRecord]:
    """Return one endpoint of the caller's."""
    found = webhook_endpoints.get_endpoint(uow, caller, endpoint_id)
    return envelope(schemas.WebhookEndpointRecord.model_validate(found))


@router.patch(
    _ONE,
    responses=refuses(
        *_FINDING, webhooks.WEBHOOK_URL_NOT_ALLOWED, webhooks.WEBHOOK_ENDED, access.AUTH_LOGIN_AGAIN
    ),
)
async def change_webhook_endpoint(
    state: StateOf, caller: WebhookKeeper, endpoint_id: PathId, body: schemas.WebhookEndpointChange
) -> Envelope[schemas.WebhookEndpointRecord]:
    """Change the URL or the types, pause the endpoint, or make it active again.

    An endpoint that is active again gets what happened meanwhile; of a type that is added it gets
    what happens from then on. A session needs a login of the last 15 minutes.
    """
    if body.url is not None:
        await state.check_receiver(caller.user_id, body.url)
    to = EndpointChange(url=body.url, types=body.types, state=body.state)
    changed = await state.in_unit_of_work(
        webhook_endpoints.change_endpoint, caller, endpoint_id, to
    )
    return envelope(schemas.WebhookEndpointRecord.model_validate(changed))


@router.delete(_ONE, responses=refuses(*_FINDING))
def delete_webhook_endpoint(
    uow: Transaction, caller: WebhookKeeper, endpoint_id: PathId
) -> Envelope[int]:
    """Send nothing more to the endpoint, and show it no more."""
    return envelope(webhook_endpoints.delete_endpoint(uow, caller, endpoint_id))


@router.post(
    f"{_ONE}/rotate",
    responses=refuses(
        *_FINDING,
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
    return envelope(schemas.RotatedSecret(secret=secret))


@router.post(
    f"{_ONE}/test",
    responses=refuses(
        *_FINDING,
        webhooks.WEBHOOK_NOT_ACTIVE,
        webhooks.WEBHOOK_TOO_MANY_PENDING,
        access.QUOTA_EXCEEDED,
    ),
)
def test_webhook_endpoint(
    uow: Transaction, caller: WebhookKeeper, endpoint_id: PathId
) -> Envelope[schemas.WebhookDeliveryRecord]:
    """Send an event of the type `webhook.test`, which tells of nothing."""
    sent = deliveries.send_test(uow, caller, endpoint_id)
    return envelope(schemas.WebhookDeliveryRecord.of(sent))


@router.post(
    f"{_ONE}/replay",
    responses=refuses(*_FINDING, webhooks.WEBHOOK_NOT_ACTIVE, access.QUOTA_EXCEEDED),
)
def replay_webhook_events(
    uow: Transaction, caller: WebhookKeeper, endpoint_id: PathId, body: schemas.ReplaySince
) -> Envelope[int]:
    """Send all events again that happened since a time, also those that were delivered: 1, or 0
    when there is none."""
    return envelope(deliveries.replay_events(uow, caller, endpoint_id, body.since))


@router.get(f"{_ONE}/deliveries", responses=refuses(*_FINDING, requests.CURSOR_INVALID))
def list_webhook_deliveries(
    uow: Transaction,
    caller: WebhookKeeper,
    endpoint_id: PathId,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Envelope[schemas.WebhookDeliveriesPage]:
    """Return the deliveries of the last 30 days, newest first, with the last answers."""
    read = partial(deliveries.list_deliveries, uow, caller, endpoint_id)
    wanted = PageRequest(limit, cursor=cursor)
    found = filled(wanted, read, lambda rows: [*map(schemas.WebhookDeliveryRecord.of, rows)])
    pagination = schemas.DeliveriesPagination(limit=limit, next_cursor=found.next_cursor)
    return envelope(schemas.WebhookDeliveriesPage(pagination=pagination, items=found.rows))


@router.post(
    f"{_ONE}/deliveries/{{delivery_id}}/resend",
    responses=refuses(
        *_FINDING,
        webhooks.WEBHOOK_DELIVERY_NOT_FOUND,
        webhooks.WEBHOOK_EVENT_GONE,
        webhooks.WEBHOOK_NOT_ACTIVE,
        webhooks.WEBHOOK_TOO_MANY_PENDING,
    ),
)
def resend_webhook_delivery(
    uow: Transaction, caller: WebhookKeeper, endpoint_id: PathId, delivery_id: PathId
) -> Envelope[schemas.WebhookDeliveryRecord]:
    """Send one event again, whatever became of it before."""
    sent = deliveries.resend_delivery(uow, caller, endpoint_id, delivery_id)
    return envelope(schemas.WebhookDeliveryRecord.of(sent))
