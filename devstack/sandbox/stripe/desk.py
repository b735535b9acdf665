"""What holds for each call of the API: the key, idempotency, and trouble on demand.

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

from devstack.sandbox.stripe.forms import Params, decode
from devstack.sandbox.stripe.keys import StripeKeys
from devstack.sandbox.stripe.objects import API_VERSION, Object
from devstack.sandbox.stripe.problems import StripeProblem
from devstack.sandbox.stripe.records import new_id

_MAX_KEPT_KEYS = 5_000
_MAX_BODY_BYTES = 64 * 1024
_MAX_KEY_CHARACTERS = 255

Operation = Callable[[Params], Object]


class InjectedFailure(BaseModel):
    """What the next calls of the API meet.

    ``before``: the call does nothing; ``after``: it does its work, and only the answer is lost.
    Without a status the call is merely slow.
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
        self.trouble = InjectedFailure(count=0)
        self._keys = keys
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def answer(self, request: Request, do: Operation) -> JSONResponse:
        trouble = self._take_trouble()
        if trouble.when == "before":
            await asyncio.sleep(trouble.seconds)
            if trouble.status:
                return _reply(trouble.status, _broken(trouble.status))
        status, body, is_replayed = await self._work_out(request, do)
        if trouble.when == "after":
            await asyncio.sleep(trouble.seconds)
            if trouble.status:
                return _reply(trouble.status, _broken(trouble.status))
        reply = _reply(status, body)
        if is_replayed:
            reply.headers["Idempotent-Replayed"] = "true"
        return reply

    def _take_trouble(self) -> InjectedFailure:
        if self.trouble.count == 0:
            return InjectedFailure(count=0)
        self.trouble.count -= 1
        return self.trouble

    async def _work_out(self, request: Request, do: Operation) -> tuple[int, Object, bool]:
        try:
            self._check_key(request)
            params = decode(await _sent(request))
            key = request.headers.get("Idempotency-Key")
            if request.method != "POST" or key is None:
                return HTTPStatus.OK, do(params), False
            return self._once(key, request.url.path, params, do)
        except StripeProblem as problem:
            return problem.status, problem.body, False

    def _once(self, key: str, path: str, params: Params, do: Operation) -> tuple[int, Object, bool]:
        if len(key) > _MAX_KEY_CHARACTERS:
            raise StripeProblem("Idempotency keys are at most 255 characters long.")
        kept = self._kept.get(key)
        if kept is None:
            # What is refused leaves the key free.
            body = do(params)
            self._kept[key] = _Kept(path, params, body)
            if len(self._kept) > _MAX_KEPT_KEYS:
                self._kept.popitem(last=False)
            return HTTPStatus.OK, body, False
        if (kept.path, kept.params) != (path, params):
            raise StripeProblem(
                "Keys for idempotent requests can only be used with the same parameters they were "
                f"first used with. Try using a key other than '{key}'.",
                kind="idempotency_error",
            )
        return HTTPStatus.OK, kept.body, True

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


def _broken(status: int) -> Object:
    kind, code = "api_error", None
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        kind, code = "invalid_request_error", "rate_limit"
    message = "The sandbox was told to answer so."
    return {"error": {"type": kind, "message": message} | ({"code": code} if code else {})}


def _reply(status: int, body: Object) -> JSONResponse:
    headers = {"Request-Id": new_id("req"), "Stripe-Version": API_VERSION}
    return JSONResponse(body, status_code=status, headers=headers)
