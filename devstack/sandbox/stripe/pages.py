"""The page on which a payer pays, and the operator's page, on which all else is made to happen."""

import asyncio
from decimal import Decimal
from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Form, HTTPException
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from core.money import minor_digits
from devstack.sandbox.stripe.account import Account, ActionNotPossible
from devstack.sandbox.stripe.control import ACTIONS, ActionAmount, act
from devstack.sandbox.stripe.records import CheckoutSession
from devstack.sandbox.stripe.webhook_sender import DeliveryMode, DeliveryVariant, WebhookSender
from devstack.sandbox.templates import render

# How long after its order on the page a bank debit succeeds or fails.
DEBIT_SECONDS = 5.0
_MAX_SHOWN_SESSIONS = 100

_BACK = RedirectResponse("/stripe", HTTPStatus.SEE_OTHER)

Text = Annotated[str, Form(max_length=200)]
Times = Annotated[int, Form(ge=1, le=20)]
Delay = Annotated[float, Form(ge=0, le=60)]
Ticked = Annotated[bool, Form()]
Signature = Annotated[Literal["good", "wrong", "missing", "old", "rolled"], Form()]


def make_router(account: Account, sender: WebhookSender) -> APIRouter:
    """The operator's page is at the path where the router is mounted."""
    router = APIRouter()
    _add_payers_page(router, account)
    _add_operators_page(router, account, sender)
    return router


def _add_payers_page(router: APIRouter, account: Account) -> None:
    @router.get("/pay/{session_id}", response_class=HTMLResponse)
    async def show(session_id: str) -> Response:
        return _payers_page(_find(account, session_id))

    @router.post("/pay/{session_id}")
    async def choose(session_id: str, choice: Text) -> Response:
        session = _find(account, session_id)
        try:
            return _chosen(account, session, choice)
        except ActionNotPossible as refusal:
            return _payers_page(session, str(refusal), HTTPStatus.CONFLICT)


def _add_operators_page(router: APIRouter, account: Account, sender: WebhookSender) -> None:
    @router.get("", response_class=HTMLResponse)
    async def overview() -> Response:
        return _operators_page(account, sender)

    @router.post("/sessions/{session_id}")
    async def change(session_id: str, action: Text, amount: Text = "") -> Response:
        session = _find(account, session_id)
        if action not in ACTIONS:
            raise HTTPException(400, "There is no such action.")
        try:
            act(account, session, action, ActionAmount(amount=_minor(amount, session.currency)))
        except ActionNotPossible as refusal:
            return _operators_page(account, sender, str(refusal))
        return _BACK

    @router.post("/events/{event_id}")
    async def deliver(event_id: str, signature: Signature = "good", times: Times = 1) -> Response:
        sent = sender.find(event_id)
        if sent is None:
            raise HTTPException(404, "There is no such event, or not any more.")
        await sender.deliver(sent, DeliveryVariant(times=times, signature=signature))
        return _BACK

    @router.post("/mode")
    async def set_mode(
        times: Times = 1, delay: Delay = 0.0, shuffle: Ticked = False, hold: Ticked = False
    ) -> Response:
        sender.mode = DeliveryMode(times=times, delay=delay, shuffle=shuffle, hold=hold)
        return _BACK

    @router.post("/release")
    async def release() -> Response:
        sender.release(sender.mode)
        return _BACK


def _find(account: Account, session_id: str) -> CheckoutSession:
    found = account.session(session_id)
    if found is None:
        raise HTTPException(404, "There is no such checkout, or not any more.")
    return found


def _chosen(account: Account, session: CheckoutSession, choice: str) -> Response:
    match choice:
        case "cancel":
            return _sent_back(session, session.cancel_url or session.success_url)
        case "decline":
            account.decline(session)
            return _payers_page(session, "The card was declined. Nothing was paid. Try another.")
        case "expire":
            account.expire(session)
            return _payers_page(session)
        case "pay":
            account.pay(session)
        case "debit" | "debit_fails":
            account.promise(session)
            _end_debit_later(account, session, comes=choice == "debit")
        case _:
            raise HTTPException(400, "There is no such action.")
    return _sent_back(session, session.success_url)


def _end_debit_later(account: Account, session: CheckoutSession, *, comes: bool) -> None:
    def end() -> None:
        # The operator may have settled it before.
        if session.is_promised:
            (account.settle if comes else account.fall_through)(session)

    asyncio.get_running_loop().call_later(DEBIT_SECONDS, end)


def _sent_back(session: CheckoutSession, url: str) -> Response:
    url = url.replace("{CHECKOUT_SESSION_ID}", session.id)
    return RedirectResponse(url, HTTPStatus.SEE_OTHER)


def _minor(amount: str, currency: str) -> int | None:
    """An amount that a person wrote, such as 1.50, in the minor unit; None for an empty one."""
    if not amount.strip():
        return None
    try:
        found = Decimal(amount.strip()).scaleb(_digits(currency))
        if found != int(found):
            raise ActionNotPossible(f"{amount} is more exact than {currency.upper()}.")
        return int(found)
    except (ArithmeticError, ValueError):
        raise ActionNotPossible(f"{amount} is no amount.") from None


def _money(minor: int, currency: str) -> str:
    digits = _digits(currency)
    return f"{Decimal(minor).scaleb(-digits):,.{digits}f} {currency.upper()}"


def _digits(currency: str) -> int:
    try:
        return minor_digits(currency.upper())
    except ValueError:
        return 2


def _payers_page(
    session: CheckoutSession, notice: str = "", status: HTTPStatus = HTTPStatus.OK
) -> Response:
    if session.status == "expired":
        status = HTTPStatus.GONE
    values = {"session": session, "notice": notice, "debit_seconds": int(DEBIT_SECONDS)}
    return _page("pay.html", status, **values)


def _operators_page(account: Account, sender: WebhookSender, notice: str = "") -> Response:
    shown = account.newest_first()[:_MAX_SHOWN_SESSIONS]
    events = {each.id: sender.events(each.id) for each in shown}
    held = sum(each.is_held for each in sender.events())
    status = HTTPStatus.CONFLICT if notice else HTTPStatus.OK
    values = {"sessions": shown, "events": events, "held": held, "mode": sender.mode}
    return _page("operator.html", status, notice=notice, **values)


def _page(template: str, status: HTTPStatus, **values: object) -> Response:
    text = render(f"stripe/{template}", money=_money, **values)
    return HTMLResponse(text, status, {"Cache-Control": "no-store"})
