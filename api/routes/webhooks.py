"""The API endpoint for the webhooks of payment providers."""

from fastapi import APIRouter, Request

from api.auth.requirements import UNLIMITED
from api.limits.bulkheads import MONEY
from api.openapi.declarations import error_responses
from api.route_classes import ThreadedRoute
from api.schemas.envelope import Envelope, build_envelope
from api.state import StateOf
from core.errors import money, requests
from services.credits import payment_webhooks

router = APIRouter(tags=["Credits"], dependencies=[UNLIMITED], route_class=ThreadedRoute)

_SIGNATURE_PARAMETER = {
    "name": "Stripe-Signature",
    "in": "header",
    "required": True,
    "schema": {"type": "string"},
}


@router.post(
    "/webhooks/stripe",
    summary="Receive a Stripe event",
    responses=error_responses(
        money.WEBHOOK_SIGNATURE_INVALID,
        money.WEBHOOK_UNREADABLE,
        requests.BODY_TOO_LARGE.fill(most="1 MB"),
        requests.SERVICE_UNAVAILABLE,
        money.TOPUP_NO_CHANNEL,
    ),
    openapi_extra={
        "parameters": [_SIGNATURE_PARAMETER],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "description": "An event in Stripe's format",
                        "examples": [{"id": "evt_1NG8Du2eZvKYlo2C", "type": "charge.refunded"}],
                    }
                }
            },
        },
    },
)
async def receive_stripe_webhook(request: Request, state: StateOf) -> Envelope[int]:
    """Receive an event from Stripe. Events may be repeated, delayed, or out of order."""
    body = await request.body()
    signature = request.headers.get("stripe-signature", "")
    await MONEY.run(
        payment_webhooks.receive_event, state.resources, state.payments, body, signature
    )
    return build_envelope(1)
