"""The part of Stripe's HTTP API below ``/v1`` that Pressroom uses."""

import asyncio
from collections.abc import Callable
from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from devstack.sandbox.stripe import stripe_objects
from devstack.sandbox.stripe.account import Account
from devstack.sandbox.stripe.gateway import StripeGateway
from devstack.sandbox.stripe.records import CheckoutSession, Payment, now
from devstack.sandbox.stripe.stripe_forms import Params
from devstack.sandbox.stripe.stripe_objects import Object
from devstack.sandbox.stripe.stripe_problems import StripeProblem, missing

MAX_SESSION_SECONDS = 24 * 60 * 60


class StripeOperations:
    """What each call of the API does, apart from HTTP."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def create(self, pages: str, given: Params) -> Object:
        price = given["line_items"][0]["price_data"]
        of_payment = given.get("payment_intent_data", {})
        session = CheckoutSession(
            amount=int(price["unit_amount"]),
            currency=price["currency"],
            name=price["product_data"]["name"],
            reference=given.get("client_reference_id"),
            metadata=given.get("metadata", {}),
            payment_metadata=of_payment.get("metadata", {}),
            payment_description=of_payment.get("description"),
            success_url=given["success_url"],
            cancel_url=given.get("cancel_url"),
            expires_at=int(given.get("expires_at", now() + MAX_SESSION_SECONDS)),
        )
        session.url = f"{pages}/pay/{session.id}"
        self._account.keep(session)
        asyncio.get_running_loop().call_later(
            session.expires_at - now() + 1, lambda: self._account.expire_due(now())
        )
        return stripe_objects.session_object(session)

    def show_session(self, session_id: str, given: Params) -> Object:
        """The session; with `expand`, its payment and the payment's charge are written out."""
        session = self._session(session_id)
        shown = stripe_objects.session_object(session)
        if "expand" in given and session.payment is not None:
            charge = stripe_objects.charge_object(session.payment)
            shown["payment_intent"] = stripe_objects.payment_object(session.payment) | {
                "latest_charge": charge if session.payment.is_paid else None
            }
        return shown

    def expire(self, session_id: str, _: Params) -> Object:
        session = self._session(session_id)
        if not session.is_open:
            raise StripeProblem(
                'Only Checkout Sessions with a status in ["open"] can be expired. '
                f"This Checkout Session has a status of `{session.status}`."
            )
        self._account.expire(session)
        return stripe_objects.session_object(session)

    def show_payment(self, payment_id: str, _: Params) -> Object:
        return stripe_objects.payment_object(self._payment(payment_id))

    def disputes(self, given: Params) -> Object:
        payment = self._payment(given["payment_intent"])
        shown = [
            stripe_objects.dispute_object(payment, each) for each in reversed(payment.disputes)
        ]
        return stripe_objects.list_object("/v1/disputes", shown, given)

    def refunds(self, given: Params) -> Object:
        payment = self._payment(given["payment_intent"])
        shown = [stripe_objects.refund_object(payment, each) for each in reversed(payment.refunds)]
        return stripe_objects.list_object("/v1/refunds", shown, given)

    def _session(self, session_id: str) -> CheckoutSession:
        found = self._account.session(session_id)
        if found is None:
            raise missing("checkout.session", session_id, "session")
        return found

    def _payment(self, payment_id: str) -> Payment:
        found = self._account.payment(payment_id)
        if found is None:
            raise missing("payment_intent", payment_id)
        return found


def make_router(gateway: StripeGateway, operations: StripeOperations) -> APIRouter:
    router = APIRouter(prefix="/v1")

    @router.post("/checkout/sessions")
    async def create(request: Request) -> JSONResponse:
        pages = str(request.url.replace(path=request.url.path.partition("/v1/")[0], query=""))
        return await gateway.answer(request, partial(operations.create, pages))

    add_operation(router, gateway, "GET /checkout/sessions/{session_id}", operations.show_session)
    add_operation(router, gateway, "POST /checkout/sessions/{session_id}/expire", operations.expire)
    add_operation(router, gateway, "GET /payment_intents/{payment_id}", operations.show_payment)
    add_operation(router, gateway, "GET /disputes", operations.disputes)
    add_operation(router, gateway, "GET /refunds", operations.refunds)
    return router


def add_operation(
    router: APIRouter, gateway: StripeGateway, route: str, operation: Callable[..., Object]
) -> None:
    method, path = route.split()

    @router.api_route(path, methods=[method])
    async def call(request: Request) -> JSONResponse:
        return await gateway.answer(request, partial(operation, *request.path_params.values()))
