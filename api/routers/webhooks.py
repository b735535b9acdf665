from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from api.access.requirements import UNLIMITED
from api.openapi import refuses
from api.parameters import StateOf
from api.schemas.envelope import Envelope, envelope
from services.money.topups import webhooks

router = APIRouter(tags=["Credits"], dependencies=[UNLIMITED])


@router.post(
    "/webhooks/stripe",
    responses=refuses(
        (400, "webhook.signature_invalid", "The signature is missing, wrong or too old."),
        (400, "webhook.unreadable", "The body is signed, but no event can be read from it."),
        (413, "body.too_large", "The body of this request has at most 1 MB."),
        (503, "service.unavailable", "A part of the service is not reachable."),
        (503, "topup.channel_unavailable", "Payments are not set up here."),
    ),
    openapi_extra={
        "parameters": [
            {
                "name": "Stripe-Signature",
                "in": "header",
                "required": True,
                "schema": {"type": "string"},
            }
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": {}}}},
    },
)
async def receive_stripe_webhook(request: Request, state: StateOf) -> Envelope[int]:
    """Take in an event of Stripe's. It may come twice, late, and before what led to it."""
    body = await request.body()
    signature = request.headers.get("stripe-signature", "")
    await run_in_threadpool(webhooks.receive, state.resources, state.payments, body, signature)
    return envelope(1)
