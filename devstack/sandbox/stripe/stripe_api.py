"""The part of Stripe's HTTP API below ``/v1`` that Pressroom uses."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from devstack.sandbox.stripe import stripe_objects
from devstack.sandbox.stripe.account import Account, ActionNotPossible
from devstack.sandbox.stripe.gateway import StripeGateway
from devstack.sandbox.stripe.records import CheckoutSession, Payment
from devstack.sandbox.stripe.stripe_forms import Params
from devstack.sandbox.stripe.stripe_objects import Object
from devstack.sandbox.stripe.stripe_problems import StripeProblem, missing
from devstack.sandbox.stripe.webhook_sender import WebhookSender

_KNOWN = frozenset(
    {"mode", "line_items", "client_reference_id", "metadata", "payment_intent_data", "expand"}
    | {"adaptive_pricing", "expires_at", "success_url", "cancel_url"}
)
_MIN_SESSION_SECONDS, _MAX_SESSION_SECONDS = 30 * 60, 24 * 60 * 60
_MAX_AMOUNT_MINOR = 99_999_999


class StripeOperations:
    """What each call of the API does, apart from HTTP."""

    def __init__(self, account: Account, sender: WebhookSender) -> None:
        self._account = account
        self._sender = sender
        self._by_name = {
            "payment_intent": lambda an_id: stripe_objects.payment_object(self.payment(an_id)),
            "latest_charge": lambda an_id: stripe_objects.charge_object(self.payment(an_id)),
            "charge": lambda an_id: stripe_objects.charge_object(self.payment(an_id)),
        }

    def session(self, session_id: str) -> CheckoutSession:
        found = self._account.session(session_id)
        if found is None:
            raise missing("checkout.session", session_id, "session")
        return found

    def payment(self, an_id: str) -> Payment:
        found = self._account.payment(an_id)
        if found is None or (an_id.startswith("ch_") and not found.is_paid):
            raise missing("charge" if an_id.startswith("ch_") else "payment_intent", an_id)
        return found

    def create(self, pages: str, given: Params) -> Object:
        session = _session(given)
        session.url = f"{pages}/pay/{session.id}"
        self._account.keep(session)
        asyncio.get_running_loop().call_later(
            session.expires_at - time.time() + 1,
            lambda: self._account.expire_due(int(time.time())),
        )
        return stripe_objects.session_object(session)

    def show_session(self, session_id: str, given: Params) -> Object:
        return self._expanded(stripe_objects.session_object(self.session(session_id)), given)

    def expire(self, session_id: str, _: Params) -> Object:
        session = self.session(session_id)
        if not session.is_open:
            raise StripeProblem(
                'Only Checkout Sessions with a status in ["open"] can be expired. '
                f"This Checkout Session has a status of `{session.status}`."
            )
        self._account.expire(session)
        return stripe_objects.session_object(session)

    def show_payment(self, payment_id: str, given: Params) -> Object:
        return self._expanded(stripe_objects.payment_object(self.payment(payment_id)), given)

    def show_charge(self, charge_id: str, given: Params) -> Object:
        return self._expanded(stripe_objects.charge_object(self.payment(charge_id)), given)

    def refund(self, given: Params) -> Object:
        payment = self.payment(given.get("payment_intent") or _text(given, "charge"))
        session = next(each for each in self._account.newest_first() if each.payment is payment)
        amount = _whole(given, "amount") if "amount" in given else None
        try:
            refund = self._account.refund(session, amount)
        except ActionNotPossible as refusal:
            spent = payment.is_paid and payment.refunded == payment.amount
            code = "charge_already_refunded" if spent else None
            raise StripeProblem(str(refusal), code=code, param="amount") from None
        return stripe_objects.refund_object(payment, refund)

    def disputes(self, given: Params) -> Object:
        payment = self.payment(_text(given, "payment_intent"))
        shown = [
            stripe_objects.dispute_object(payment, each) for each in reversed(payment.disputes)
        ]
        return stripe_objects.list_object("/v1/disputes", shown)

    def events(self, _: Params) -> Object:
        shown = [each.event for each in reversed(self._sender.events())]
        return stripe_objects.list_object("/v1/events", shown[:100])

    def _expanded(self, shown: Object, given: Params) -> Object:
        return stripe_objects.expand(shown, _listed(given, "expand"), self._by_name)


def make_router(gateway: StripeGateway, operations: StripeOperations) -> APIRouter:
    router = APIRouter(prefix="/v1")

    def add(method: str, path: str, operation: Callable[..., Object]) -> None:
        @router.api_route(path, methods=[method])
        async def call(request: Request) -> JSONResponse:
            return await gateway.answer(request, partial(operation, *request.path_params.values()))

    @router.post("/checkout/sessions")
    async def create(request: Request) -> JSONResponse:
        pages = str(request.url.replace(path=request.url.path.partition("/v1/")[0], query=""))
        return await gateway.answer(request, partial(operations.create, pages))

    add("GET", "/checkout/sessions/{session_id}", operations.show_session)
    add("POST", "/checkout/sessions/{session_id}/expire", operations.expire)
    add("GET", "/payment_intents/{payment_id}", operations.show_payment)
    add("GET", "/charges/{charge_id}", operations.show_charge)
    add("POST", "/refunds", operations.refund)
    add("GET", "/disputes", operations.disputes)
    add("GET", "/events", operations.events)
    return router


def _session(given: Params) -> CheckoutSession:
    unknown = given.keys() - _KNOWN
    if unknown:
        name = min(unknown)
        message = f"Received unknown parameter: {name}"
        raise StripeProblem(message, code="parameter_unknown", param=name)
    if _text(given, "mode") != "payment":
        raise StripeProblem("Only the mode `payment` is played here.", param="mode")
    price, inside = _price(given), _inside(given, "payment_intent_data")
    return CheckoutSession(
        amount=_whole(price, "unit_amount"),
        currency=_currency(price),
        name=_text(_inside(price, "product_data"), "name"),
        reference=given.get("client_reference_id"),
        metadata=_inside(given, "metadata"),
        payment_metadata=_inside(inside, "metadata"),
        payment_description=inside.get("description"),
        success_url=_url(given, "success_url"),
        cancel_url=_url(given, "cancel_url") if "cancel_url" in given else None,
        expires_at=_end(given),
    )


def _price(given: Params) -> Params:
    items = _listed(given, "line_items")
    if len(items) != 1 or not isinstance(items[0], dict) or items[0].get("quantity") != "1":
        raise StripeProblem("One line item of one piece is played here.", param="line_items")
    return _inside(items[0], "price_data")


def _end(given: Params) -> int:
    now = int(time.time())
    if "expires_at" not in given:
        return now + _MAX_SESSION_SECONDS
    end = _whole(given, "expires_at")
    if not now + _MIN_SESSION_SECONDS <= end <= now + _MAX_SESSION_SECONDS:
        message = "The `expires_at` timestamp must be between 30 minutes and 24 hours from now."
        raise StripeProblem(message, param="expires_at")
    return end


def _currency(price: Params) -> str:
    currency = _text(price, "currency")
    if len(currency) != 3 or not currency.isalpha() or not currency.islower():  # noqa: PLR2004
        raise StripeProblem(f"Invalid currency: {currency}", param="currency")
    return currency


def _url(given: Params, name: str) -> str:
    url = _text(given, name)
    if urlsplit(url).scheme not in {"http", "https"}:
        raise StripeProblem("Not a valid URL", code="url_invalid", param=name)
    return url


def _whole(given: Params, name: str) -> int:
    text = _text(given, name)
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:12]) <= 10**10:
        raise StripeProblem(
            f"Invalid integer: {text}", code="parameter_invalid_integer", param=name
        )
    if name != "expires_at" and int(text) > _MAX_AMOUNT_MINOR:
        raise StripeProblem("The amount is too large.", code="amount_too_large", param=name)
    return int(text)


def _text(given: Params, name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        message = f"Missing required param: {name}."
        raise StripeProblem(message, code="parameter_missing", param=name)
    return value


def _inside(given: Params, name: str) -> Params:
    value = given.get(name, {})
    if not isinstance(value, dict):
        raise StripeProblem(f"Invalid object: {name}", param=name)
    return value


def _listed(given: Params, name: str) -> list[Any]:
    value = given.get(name, [])
    if not isinstance(value, list):
        raise StripeProblem("Invalid array", param=name)
    return value
