"""What every call of the API goes through: the secret key, idempotency, and failures on demand.

Source: docs.stripe.com/api/idempotent_requests.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from http import HTTPStatus
from typing import Literal

from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from devstack.sandbox.stripe.keys import StripeKeys
from devstack.sandbox.stripe.records import new_id
from devstack.sandbox.stripe.stripe_forms import Params, decode
from devstack.sandbox.stripe.stripe_objects import API_VERSION, Object
from devstack.sandbox.stripe.stripe_problems import StripeProblem

_MAX_KEPT_ANSWERS = 5_000

Operation = Callable[[Params], Object]
# Raises StripeProblem for a call that it refuses.
CallCheck = Callable[[Request, Params], None]


class InjectedFailure(BaseModel):
    """How the next calls of the API fail.

    ``before``: the call does nothing; ``after``: it does its work, and only the answer is lost.
    Without a status the call is only slow.
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
        # The first answer to each idempotency key.
        self._answers: OrderedDict[str, Object] = OrderedDict()

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
            given = decode((await request.body()).decode() if is_post else request.url.query)
            self.check(request, given)
            if key in self._answers:
                reply = _response(HTTPStatus.OK, self._answers[key])
                reply.headers["Idempotent-Replayed"] = "true"
                return reply
            body = do(given)
        except StripeProblem as problem:
            # A refused call leaves its key free.
            return _response(problem.status, problem.body)
        if key:
            self._answers[key] = body
            if len(self._answers) > _MAX_KEPT_ANSWERS:
                self._answers.popitem(last=False)
        return _response(HTTPStatus.OK, body)


def _response(status: int, body: Object) -> JSONResponse:
    headers = {"Request-Id": new_id("req"), "Stripe-Version": API_VERSION}
    return JSONResponse(body, status_code=status, headers=headers)
