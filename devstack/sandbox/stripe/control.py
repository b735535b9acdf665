"""The operator's actions as JSON, for scripts."""

from typing import Any

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel

from devstack.sandbox.stripe.account import Account, ActionNotPossible
from devstack.sandbox.stripe.gateway import InjectedFailure, StripeGateway
from devstack.sandbox.stripe.records import CheckoutSession
from devstack.sandbox.stripe.stripe_objects import Object, fields
from devstack.sandbox.stripe.webhook_sender import DeliveryMode, DeliveryVariant, WebhookSender


class ActionAmount(BaseModel):
    """The amount, in the minor unit, of a refund, a dispute or a change."""

    amount: int | None = None
    currency: str | None = None


def act(account: Account, session: CheckoutSession, action: str, about: ActionAmount) -> None:
    """Do what the action says; raise ``ActionNotPossible`` where the checkout forbids it."""
    match action:
        case "pay" | "promise":
            account.pay(session, later=action == "promise")
        case "settle" | "fall_through":
            account.settle(session, comes=action == "settle")
        case "decline":
            account.decline(session)
        case "expire":
            account.expire(session)
        case "alter":
            session.amount = about.amount or session.amount
            session.currency = (about.currency or session.currency).lower()
        case "refund":
            account.refund(session, about.amount)
        case "fail_refund":
            account.fail_refund(session)
        case "dispute" | "inquire":
            account.dispute(session, about.amount, is_inquiry=action == "inquire")
        case "win" | "lose":
            account.end_dispute(session, {"win": "won", "lose": "lost"}[action], about.amount)
        case _:
            raise HTTPException(404, "There is no such action.")


def session_named(account: Account, session_id: str) -> CheckoutSession:
    found = account.session(session_id)
    if found is None:
        raise HTTPException(404, "There is no such checkout, or not any more.")
    return found


def make_router(account: Account, sender: WebhookSender, gateway: StripeGateway) -> APIRouter:
    router = APIRouter(prefix="/control")
    _add_events(router, sender)

    @router.get("/sessions")
    async def sessions() -> list[Object]:
        return [as_json(each) for each in account.newest_first()]

    @router.post("/sessions/{session_id}/{action}")
    async def do(session_id: str, action: str, about: ActionAmount | None = None) -> Object:
        session = session_named(account, session_id)
        try:
            act(account, session, action, about or ActionAmount())
        except ActionNotPossible as refusal:
            raise HTTPException(409, str(refusal)) from None
        return as_json(session)

    @router.put("/trouble")
    async def set_failure(failure: InjectedFailure) -> InjectedFailure:
        gateway.failure = failure
        return failure

    return router


def _add_events(router: APIRouter, sender: WebhookSender) -> None:
    @router.get("/events")
    async def events(session: str | None = None) -> list[Object]:
        return [
            fields(sent, "is_held attempts event")
            | {"id": sent.event["id"], "type": sent.event["type"], "session": sent.session_id}
            for sent in sender.events(session)
        ]

    @router.post("/events/{event_id}/deliver")
    async def deliver(event_id: str, variant: DeliveryVariant | None = None) -> dict[str, Any]:
        sent = sender.find(event_id)
        return {"attempts": await sender.deliver(sent, variant or DeliveryVariant())}

    @router.put("/mode")
    async def set_mode(mode: DeliveryMode) -> DeliveryMode:
        sender.mode = mode
        return mode

    @router.post("/release")
    async def release(mode: DeliveryMode | None = None) -> dict[str, int]:
        return {"released": sender.release(mode or DeliveryMode())}


def as_json(session: CheckoutSession) -> Object:
    payment = session.payment
    return fields(session, "id url status payment_status amount name expires_at") | {
        "order_id": session.reference,
        "currency": session.currency.upper(),
        "payment": payment.id if payment else None,
        "charge": payment.charge_id if payment and payment.is_paid else None,
        "refunded": payment.refunded if payment else 0,
        "disputes": [each.status for each in payment.disputes] if payment else [],
    }
