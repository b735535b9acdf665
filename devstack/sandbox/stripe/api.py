"""Simulates the part of Stripe's HTTP API that Pressroom uses.

The simulated API checks the secret key and the idempotency key of each call. Developers can make
calls to the simulated API fail. Source: docs.stripe.com/api/idempotent_requests.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from devstack.sandbox.stripe import objects
from devstack.sandbox.stripe.account import Account
from devstack.sandbox.stripe.objects import Object, Params, StripeKeys, StripeProblem, get_timestamp

Operation = Callable[[Params], Object]
# A function that checks an API call, and raises ``StripeProblem`` to refuse the call.
CallCheck = Callable[[Request, Params], None]
MAX_SESSION_SECONDS = 24 * 60 * 60


class InjectedFailure(BaseModel):
    """A failure that a developer requests for the next ``count`` API calls.

    With ``when="before"``, the call fails before it changes anything. With ``when="after"``, the
    API call makes its changes, but the caller gets no response. If the simulated failure has no
    HTTP status, the response is only delayed.
    """

    count: int = Field(default=1, ge=0, le=10_000)
    status: int | None = Field(default=None, ge=400, le=599)
    seconds: float = Field(default=0.0, ge=0, le=120)
    when: Literal["before", "after"] = "before"


class StripeGateway:
    def __init__(self, keys: StripeKeys) -> None:
        self.failure = InjectedFailure(count=0)
        self.check: CallCheck = lambda _request, _params: None
        self._keys = keys
        # Maps each idempotency key to the response of its first call.
        self._answers: dict[str, Object] = {}

    async def respond(self, request: Request, operation: Operation) -> JSONResponse:
        failure = self.failure if self.failure.count else InjectedFailure(count=0)
        self.failure.count = max(self.failure.count - 1, 0)
        reply = await self._reply(request, operation) if failure.when == "after" else None
        await asyncio.sleep(failure.seconds)
        if failure.status:
            error = {"type": "api_error", "message": "The sandbox was told to answer so."}
            if failure.status == HTTPStatus.TOO_MANY_REQUESTS:
                error |= {"type": "invalid_request_error", "code": "rate_limit"}
            return _build_response(failure.status, {"error": error})
        return reply or await self._reply(request, operation)

    async def _reply(self, request: Request, operation: Operation) -> JSONResponse:
        is_post = request.method == "POST"
        key = request.headers.get("Idempotency-Key", "") if is_post else ""
        if request.headers.get("Authorization") != f"Bearer {self._keys.secret_key}":
            problem = StripeProblem("Invalid API Key provided.", status=HTTPStatus.UNAUTHORIZED)
            return _build_response(problem.status, problem.body)
        try:
            form = (await request.body()).decode() if is_post else request.url.query
            params = objects.decode_form(form)
            self.check(request, params)
            if key in self._answers:
                reply = _build_response(HTTPStatus.OK, self._answers[key])
                reply.headers["Idempotent-Replayed"] = "true"
                return reply
            body = operation(params)
        except StripeProblem as problem:
            # A refused call doesn't use up its idempotency key.
            return _build_response(problem.status, problem.body)
        if key:
            self._answers[key] = body
        return _build_response(HTTPStatus.OK, body)


def _build_response(status: int, body: Object) -> JSONResponse:
    headers = {"Request-Id": objects.new_id("req"), "Stripe-Version": objects.API_VERSION}
    return JSONResponse(body, status_code=status, headers=headers)


class StripeOperations:
    def __init__(self, account: Account) -> None:
        self._account = account

    def create_session(self, pages: str, params: Params) -> Object:
        price = params["line_items"][0]["price_data"]
        payment_data = params.get("payment_intent_data", {})
        session = objects.CheckoutSession(
            amount=int(price["unit_amount"]),
            currency=price["currency"],
            name=price["product_data"]["name"],
            reference=params.get("client_reference_id"),
            metadata=params.get("metadata", {}),
            payment_metadata=payment_data.get("metadata", {}),
            payment_description=payment_data.get("description"),
            success_url=params["success_url"],
            cancel_url=params.get("cancel_url"),
            expires_at=int(params.get("expires_at", get_timestamp() + MAX_SESSION_SECONDS)),
        )
        session.url = f"{pages}/pay/{session.id}"
        self._account.store(session)
        asyncio.get_running_loop().call_later(
            session.expires_at - get_timestamp() + 1,
            lambda: self._account.expire_due(get_timestamp()),
        )
        return objects.build_session_object(session)

    def show_session(self, session_id: str, params: Params) -> Object:
        """Include the payment and its charge if ``params`` contains ``expand``."""
        session = self._find_session(session_id)
        result = objects.build_session_object(session)
        if "expand" in params and session.payment is not None:
            charge = objects.build_charge_object(session.payment)
            result["payment_intent"] = objects.build_payment_object(session.payment) | {
                "latest_charge": charge if session.payment.is_paid else None
            }
        return result

    def expire_session(self, session_id: str, _: Params) -> Object:
        session = self._find_session(session_id)
        if not session.is_open:
            raise StripeProblem(
                'Only Checkout Sessions with a status in ["open"] can be expired. '
                f"This Checkout Session has a status of `{session.status}`."
            )
        self._account.expire(session)
        return objects.build_session_object(session)

    def show_payment(self, payment_id: str, _: Params) -> Object:
        return objects.build_payment_object(self._find_payment(payment_id))

    def list_disputes(self, params: Params) -> Object:
        payment = self._find_payment(params["payment_intent"])
        items = [objects.build_dispute_object(payment, each) for each in reversed(payment.disputes)]
        return objects.build_list_object("/v1/disputes", items, params)

    def list_refunds(self, params: Params) -> Object:
        payment = self._find_payment(params["payment_intent"])
        items = [objects.build_refund_object(payment, each) for each in reversed(payment.refunds)]
        return objects.build_list_object("/v1/refunds", items, params)

    def _find_session(self, session_id: str) -> objects.CheckoutSession:
        session = self._account.find_session(session_id)
        if session is None:
            raise objects.build_missing_error("checkout.session", session_id, "session")
        return session

    def _find_payment(self, payment_id: str) -> objects.Payment:
        payment = self._account.find_payment(payment_id)
        if payment is None:
            raise objects.build_missing_error("payment_intent", payment_id)
        return payment


def build_api_router(gateway: StripeGateway, operations: StripeOperations) -> APIRouter:
    router = APIRouter(prefix="/v1")

    @router.post("/checkout/sessions")
    async def create(request: Request) -> JSONResponse:
        pages = str(request.url.replace(path=request.url.path.partition("/v1/")[0], query=""))
        return await gateway.respond(request, partial(operations.create_session, pages))

    add_operation(router, gateway, "GET /checkout/sessions/{session_id}", operations.show_session)
    add_operation(
        router, gateway, "POST /checkout/sessions/{session_id}/expire", operations.expire_session
    )
    add_operation(router, gateway, "GET /payment_intents/{payment_id}", operations.show_payment)
    add_operation(router, gateway, "GET /disputes", operations.list_disputes)
    add_operation(router, gateway, "GET /refunds", operations.list_refunds)
    return router


def add_operation(
    router: APIRouter, gateway: StripeGateway, route: str, operation: Callable[..., Object]
) -> None:
    method, path = route.split()

    @router.api_route(path, methods=[method])
    async def call(request: Request) -> JSONResponse:
        return await gateway.respond(request, partial(operation, *request.path_params.values()))
