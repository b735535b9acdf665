"""The part of Stripe's HTTP API below ``/v1`` that Pressroom uses.

Every call checks the secret key and the idempotency key, and fails on request. Source:
docs.stripe.com/api/idempotent_requests.
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
from devstack.sandbox.stripe.objects import Object, Params, StripeKeys, StripeProblem, now

Operation = Callable[[Params], Object]
# A function that raises ``StripeProblem`` for a refused call.
CallCheck = Callable[[Request, Params], None]


class InjectedFailure(BaseModel):
    """The failure of the next calls of the API.

    A failure ``before`` the call prevents any change. A failure ``after`` the call loses only the
    response. A failure without a status only delays the response.
    """

    count: int = Field(default=1, ge=0, le=10_000)
    status: int | None = Field(default=None, ge=400, le=599)
    seconds: float = Field(default=0.0, ge=0, le=120)
    when: Literal["before", "after"] = "before"


class StripeGateway:
    def __init__(self, keys: StripeKeys) -> None:
        self.failure = InjectedFailure(count=0)
        self.check: CallCheck = lambda _request, _given: None
        self._keys = keys
        # Maps each idempotency key to the first response.
        self._answers: dict[str, Object] = {}

    async def answer(self, request: Request, do: Operation) -> JSONResponse:
        failure = self.failure if self.failure.count else InjectedFailure(count=0)
        self.failure.count = max(self.failure.count - 1, 0)
        reply = await self._reply(request, do) if failure.when == "after" else None
        await asyncio.sleep(failure.seconds)
        if failure.status:
            error = {"type": "api_error", "message": "The sandbox was told to answer so."}
            if failure.status == HTTPStatus.TOO_MANY_REQUESTS:
                error |= {"type": "invalid_request_error", "code": "rate_limit"}
            return _response(failure.status, {"error": error})
        return reply or await self._reply(request, do)

    async def _reply(self, request: Request, do: Operation) -> JSONResponse:
        is_post = request.method == "POST"
        key = request.headers.get("Idempotency-Key", "") if is_post else ""
        if request.headers.get("Authorization") != f"Bearer {self._keys.secret_key}":
            problem = StripeProblem("Invalid API Key provided.", status=HTTPStatus.UNAUTHORIZED)
            return _response(problem.status, problem.body)
        try:
            sent = (await request.body()).decode() if is_post else request.url.query
            given = objects.decode(sent)
            self.check(request, given)
            if key in self._answers:
                reply = _response(HTTPStatus.OK, self._answers[key])
                reply.headers["Idempotent-Replayed"] = "true"
                return reply
            body = do(given)
        except StripeProblem as problem:
            # A refused call doesn't use up its idempotency key.
            return _response(problem.status, problem.body)
        if key:
            self._answers[key] = body
        return _response(HTTPStatus.OK, body)


def _response(status: int, body: Object) -> JSONResponse:
    headers = {"Request-Id": objects.new_id("req"), "Stripe-Version": objects.API_VERSION}
    return JSONResponse(body, status_code=status, headers=headers)


MAX_SESSION_SECONDS = 24 * 60 * 60


class StripeOperations:
    """The operations of the API, without HTTP."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def create(self, pages: str, given: Params) -> Object:
        price = given["line_items"][0]["price_data"]
        of_payment = given.get("payment_intent_data", {})
        session = objects.CheckoutSession(
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
        return objects.session_object(session)

    def show_session(self, session_id: str, given: Params) -> Object:
        """Return a session. With ``expand``, the result includes the payment and its charge."""
        session = self._session(session_id)
        shown = objects.session_object(session)
        if "expand" in given and session.payment is not None:
            charge = objects.charge_object(session.payment)
            shown["payment_intent"] = objects.payment_object(session.payment) | {
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
        return objects.session_object(session)

    def show_payment(self, payment_id: str, _: Params) -> Object:
        return objects.payment_object(self._payment(payment_id))

    def disputes(self, given: Params) -> Object:
        payment = self._payment(given["payment_intent"])
        shown = [objects.dispute_object(payment, each) for each in reversed(payment.disputes)]
        return objects.list_object("/v1/disputes", shown, given)

    def refunds(self, given: Params) -> Object:
        payment = self._payment(given["payment_intent"])
        shown = [objects.refund_object(payment, each) for each in reversed(payment.refunds)]
        return objects.list_object("/v1/refunds", shown, given)

    def _session(self, session_id: str) -> objects.CheckoutSession:
        found = self._account.session(session_id)
        if found is None:
            raise objects.missing("checkout.session", session_id, "session")
        return found

    def _payment(self, payment_id: str) -> objects.Payment:
        found = self._account.payment(payment_id)
        if found is None:
            raise objects.missing("payment_intent", payment_id)
        return found


def api_router(gateway: StripeGateway, operations: StripeOperations) -> APIRouter:
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
