from collections.abc import Callable, Coroutine
from typing import Any, Protocol, runtime_checkable

import orjson
from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from api.bodies import strict_handling
from api.bodies.media_types import is_json, without_byte_order_mark
from core.refusals.requests import BODY_NO_JSON_TYPE


class JsonRequest(Request):
    async def json(self) -> Any:
        """The body, read strictly by RFC 8259: no NaN, only UTF-8, bounded depth."""
        return orjson.loads(without_byte_order_mark(await self.body()))


@runtime_checkable
class BeforeBody(Protocol):
    """A dependency that must pass before any of the body is read."""

    async def pass_before_body(self, request: Request) -> None: ...


class JsonRoute(APIRoute):
    """A route that refuses a body of another media type than JSON.

    FastAPI reads a body that the handler declares before the dependencies run. This route lets
    those pass first that check the caller: strangers must not fill the memory for bodies.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        takes_body = self.body_field is not None
        calls: list[Any] = [each.call for each in self.dependant.dependencies]
        first = [call for call in calls if isinstance(call, BeforeBody)]

        async def handle_json(request: Request) -> Response:
            receive = request.receive
            is_strict = "prefer" in request.headers and strict_handling.is_asked(request)
            if is_strict:
                receive = await strict_handling.checked(request, self.path_format)
            read = JsonRequest(request.scope, receive)
            if takes_body:
                for dependency in first:
                    await dependency.pass_before_body(read)
                if not is_json(request.headers.get("content-type", "")) and await read.body():
                    raise BODY_NO_JSON_TYPE()
                if is_strict:
                    # FastAPI would hide why the body was refused.
                    await read.body()
            return await handle(read)

        return handle_json
