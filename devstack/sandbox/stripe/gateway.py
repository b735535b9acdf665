"""What every call of the API goes through: the secret key, idempotency, and failures on demand.

Source: docs.stripe.com/api/idempotent_requests.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
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

_MAX_KEPT_KEYS = 5_000
_MAX_BODY_BYTES = 64 * 1024
_MAX_KEY_CHARACTERS = 255

Operation = Callable[[Params], Object]


class InjectedFailure(BaseModel):
    """How the next calls of the API fail.

    ``before``: the call does nothing; ``after``: it does its work, and only the answer is lost.
    Without a status the call is only slow.
    """

    count: int = Field(default=1, ge=0, le=10_000)
    status: int | None = Field(default=None, ge=400, le=599)
    seconds: float = Field(default=0.0, ge=0, le=120)
    when: Literal["before", "after"] = "before"


@dataclass(frozen=True)
class _Kept:
    """The first answer to a key."""

    path: str
    params: Params
    body: Object


class StripeGateway:
    def __init__(self, keys: StripeKeys) -> None:
        self.failure = InjectedFailure(count=0)
        self._keys = keys
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def answer(self, request: Request, do: Operation) -> JSONResponse:
        failure = self.failure if self.failure.count else InjectedFailure(count=0)
        self.failure.count = max(self.failure.count - 1, 0)
        if failure.when == "before":
            await asyncio.sleep(failure.seconds)
            if failure.status:
                return _failed(failure.status)
        reply = await self._reply(request, do)
        if failure.when == "after":
            await asyncio.sleep(failure.seconds)
            if failure.status:
                return _failed(failure.status)
        return reply

    async def _reply(self, request: Request, do: Operation) -> JSONResponse:
        try:
            self._check_key(request)
            params = decode(await _sent(request))
            key = request.headers.get("Idempotency-Key")
            if request.method != "POST" or key is None:
                return _response(HTTPStatus.OK, do(params))
            return self._once(key, request.url.path, params, do)
        except StripeProblem as problem:
            return _response(problem.status, problem.body)

    def _once(self, key: str, path: str, params: Params, do: Operation) -> JSONResponse:
        if len(key) > _MAX_KEY_CHARACTERS:
            raise StripeProblem("Idempotency keys are at most 255 characters long.")
        kept = self._kept.get(key)
        if kept is None:
            # A refused call leaves the key free.
            body = do(params)
            self._kept[key] = _Kept(path, params, body)
            if len(self._kept) > _MAX_KEPT_KEYS:
                self._kept.popitem(last=False)
            return _response(HTTPStatus.OK, body)
        if (kept.path, kept.params) != (path, params):
            raise StripeProblem(
                "Keys for idempotent requests can only be used with the same parameters they were "
                f"first used with. Try using a key other than '{key}'.",
                kind="idempotency_error",
            )
        reply = _response(HTTPStatus.OK, kept.body)
        reply.headers["Idempotent-Replayed"] = "true"
        return reply

    def _check_key(self, request: Request) -> None:
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise StripeProblem("You did not provide an API key.", status=HTTPStatus.UNAUTHORIZED)
        if key != self._keys.secret_key:
            shown = f"Invalid API Key provided: {key[:8]}***{key[-4:]}"
            raise StripeProblem(shown, status=HTTPStatus.UNAUTHORIZED)


async def _sent(request: Request) -> str:
    if request.method != "POST":
        return request.url.query
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY_BYTES:
            raise StripeProblem("The request is too long.")
    return body.decode()


def _failed(status: int) -> JSONResponse:
    error = {"type": "api_error", "message": "The sandbox was told to answer so."}
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        error |= {"type": "invalid_request_error", "code": "rate_limit"}
    return _response(status, {"error": error})


def _response(status: int, body: Object) -> JSONResponse:
    headers = {"Request-Id": new_id("req"), "Stripe-Version": API_VERSION}
    return JSONResponse(body, status_code=status, headers=headers)
