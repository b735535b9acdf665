"""Serves the page for paying a checkout, and the operator's page for changing checkouts."""

import asyncio
from decimal import Decimal
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Form, HTTPException
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel

from core.money import minor_digits
from devstack.sandbox import render
from devstack.sandbox.stripe import api
from devstack.sandbox.stripe.account import (
    Account,
    ActionNotPossible,
    DeliveryMode,
    DeliveryVariant,
    WebhookSender,
)
from devstack.sandbox.stripe.api import InjectedFailure, StripeGateway
from devstack.sandbox.stripe.objects import CheckoutSession, Object, StripeKeys, select_fields

# The number of seconds until a bank debit succeeds or fails.
DEBIT_SECONDS = 5.0
_MAX_SHOWN_SESSIONS = 100
_BACK_TO_OVERVIEW = RedirectResponse("/stripe", HTTPStatus.SEE_OTHER)


class ActionAmount(BaseModel):
    """The amount for an action on a checkout, in the currency's minor unit."""

    amount: int | None = None
    currency: str | None = None


def perform_action(
    account: Account, session: CheckoutSession, action: str, amount: ActionAmount
) -> None:
    match action:
        case "pay" | "promise":
            account.pay(session, later=action == "promise")
        case "settle" | "fall_through":
            account.end_debit(session, succeeds=action == "settle")
        case "decline":
            account.decline(session)
        case "expire":
            account.expire(session)
        case "alter":
            session.amount = amount.amount or session.amount
            session.currency = (amount.currency or session.currency).lower()
        case "refund":
            account.refund(session, amount.amount)
        case "fail_refund":
            account.fail_refund(session)
        case "dispute" | "inquire":
            account.dispute(session, amount.amount, is_inquiry=action == "inquire")
        case "win" | "lose":
            account.end_dispute(session, {"win": "won", "lose": "lost"}[action], amount.amount)
        case _:
            raise HTTPException(404, "Unknown action.")


def get_session(account: Account, session_id: str) -> CheckoutSession:
    session = account.find_session(session_id)
    if session is None:
        raise HTTPException(404, "Checkout not found.")
    return session


def build_control_router(
    account: Account, sender: WebhookSender, gateway: StripeGateway
) -> APIRouter:
    router = APIRouter(prefix="/control")

    @router.get("/events")
    async def events(session: str | None = None) -> list[Object]:
        return [
            select_fields(sent, "is_held attempts event")
            | {"id": sent.event["id"], "type": sent.event["type"], "session": sent.session_id}
            for sent in sender.list_events(session)
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

    @router.get("/sessions")
    async def sessions() -> list[Object]:
        return [describe_session(each) for each in account.list_newest_first()]

    @router.post("/sessions/{session_id}/{action}")
    async def do(session_id: str, action: str, amount: ActionAmount | None = None) -> Object:
        session = get_session(account, session_id)
        try:
            perform_action(account, session, action, amount or ActionAmount())
        except ActionNotPossible as error:
            raise HTTPException(409, str(error)) from None
        return describe_session(session)

    @router.put("/trouble")
    async def set_failure(failure: InjectedFailure) -> InjectedFailure:
        gateway.failure = failure
        return failure

    return router


def describe_session(session: CheckoutSession) -> Object:
    payment = session.payment
    return select_fields(session, "id url status payment_status amount name expires_at") | {
        "order_id": session.reference,
        "currency": session.currency.upper(),
        "payment": payment.id if payment else None,
        "charge": payment.charge_id if payment and payment.is_paid else None,
        "refunded": payment.refunded if payment else 0,
        "disputes": [each.status for each in payment.disputes] if payment else [],
    }


Text = Annotated[str, Form(max_length=200)]


def build_pages_router(account: Account, sender: WebhookSender) -> APIRouter:
    router = APIRouter()

    @router.get("/pay/{session_id}", response_class=HTMLResponse)
    async def show(session_id: str) -> Response:
        return _render_payers_page(get_session(account, session_id))

    @router.post("/pay/{session_id}")
    async def choose(session_id: str, choice: Text) -> Response:
        session = get_session(account, session_id)
        try:
            return _perform_choice(account, session, choice)
        except ActionNotPossible as error:
            return _render_payers_page(session, str(error), HTTPStatus.CONFLICT)

    @router.get("", response_class=HTMLResponse)
    async def overview() -> Response:
        return _render_operators_page(account, sender)

    @router.post("/sessions/{session_id}")
    async def change(session_id: str, action: Text, amount: Text = "") -> Response:
        session = get_session(account, session_id)
        try:
            perform_action(
                account,
                session,
                action,
                ActionAmount(amount=_parse_amount(amount, session.currency)),
            )
        except ActionNotPossible as error:
            return _render_operators_page(account, sender, str(error))
        return _BACK_TO_OVERVIEW

    @router.post("/events/{event_id}")
    async def deliver(event_id: str, variant: Annotated[DeliveryVariant, Form()]) -> Response:
        await sender.deliver(sender.find(event_id), variant)
        return _BACK_TO_OVERVIEW

    @router.post("/mode")
    async def set_mode(mode: Annotated[DeliveryMode, Form()]) -> Response:
        sender.mode = mode
        return _BACK_TO_OVERVIEW

    @router.post("/release")
    async def release() -> Response:
        sender.release(sender.mode)
        return _BACK_TO_OVERVIEW

    return router


def _perform_choice(account: Account, session: CheckoutSession, choice: str) -> Response:
    url = session.success_url
    match choice:
        case "cancel":
            url = session.cancel_url or url
        case "decline":
            account.decline(session)
            return _render_payers_page(
                session, "The card was declined. Nothing was paid. Try another."
            )
        case "expire":
            account.expire(session)
            return _render_payers_page(session)
        case "pay":
            account.pay(session)
        case "debit" | "debit_fails":
            account.pay(session, later=True)

            def end() -> None:
                # An operator may have ended the bank debit in the meantime.
                if session.is_promised:
                    account.end_debit(session, succeeds=choice == "debit")

            asyncio.get_running_loop().call_later(DEBIT_SECONDS, end)
        case _:
            raise HTTPException(400, "Unknown action.")
    url = url.replace("{CHECKOUT_SESSION_ID}", session.id)
    return RedirectResponse(url, HTTPStatus.SEE_OTHER)


def _parse_amount(amount: str, currency: str) -> int | None:
    """Convert an amount such as "1.50" to the minor unit of the currency, or "" to ``None``."""
    if not amount.strip():
        return None
    try:
        minor_amount = Decimal(amount.strip()).scaleb(_count_minor_digits(currency))
        if minor_amount != int(minor_amount):
            raise ActionNotPossible(f"{amount} has too many decimal places for {currency.upper()}.")
        return int(minor_amount)
    except (ArithmeticError, ValueError):
        raise ActionNotPossible(f"{amount} is not an amount.") from None


def _format_amount(minor: int, currency: str) -> str:
    digits = _count_minor_digits(currency)
    return f"{Decimal(minor).scaleb(-digits):,.{digits}f} {currency.upper()}"


def _count_minor_digits(currency: str) -> int:
    try:
        return minor_digits(currency.upper())
    except ValueError:
        return 2


def _render_payers_page(
    session: CheckoutSession, notice: str = "", status: HTTPStatus = HTTPStatus.OK
) -> Response:
    if session.status == "expired":
        status = HTTPStatus.GONE
    seconds = int(DEBIT_SECONDS)
    return _render_page("pay.html", status, session=session, notice=notice, debit_seconds=seconds)


def _render_operators_page(account: Account, sender: WebhookSender, notice: str = "") -> Response:
    sessions = account.list_newest_first()[:_MAX_SHOWN_SESSIONS]
    events = {each.id: sender.list_events(each.id) for each in sessions}
    held = sum(each.is_held for each in sender.list_events())
    status = HTTPStatus.CONFLICT if notice else HTTPStatus.OK
    values = {"sessions": sessions, "events": events, "held": held, "mode": sender.mode}
    return _render_page("operator.html", status, notice=notice, **values)


def _render_page(template: str, status: HTTPStatus, **values: object) -> Response:
    text = render(f"stripe/{template}", money=_format_amount, **values)
    return HTMLResponse(text, status, {"Cache-Control": "no-store"})


class StripeServer:
    def __init__(self, keys: StripeKeys) -> None:
        self.keys = keys
        self.sender = WebhookSender(keys)
        self.account = Account(self.sender.send)
        self.gateway = StripeGateway(keys)

    def build_router(self) -> APIRouter:
        """Return the routes of the Stripe stand-in, to be mounted at ``/stripe``."""
        router = build_pages_router(self.account, self.sender)
        operations = api.StripeOperations(self.account)
        router.include_router(api.build_api_router(self.gateway, operations))
        router.include_router(build_control_router(self.account, self.sender, self.gateway))
        return router
