from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from api.bodies.media_types import is_json, without_byte_order_mark
from core.refusals.requests import BODY_NO_JSON_TYPE


class JsonRequest(Request):
    async def json(self) -> Any:
        """The body, read strictly by RFC 8259: no NaN, only UTF-8, bounded depth."""
        return orjson.loads(without_byte_order_mark(await self.body()))


class JsonRoute(APIRoute):
    """A route that refuses a body of another media type than JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        takes_body = self.body_field is not None

        async def handle_json(request: Request) -> Response:
            strict = JsonRequest(request.scope, request.receive)
            content_type = request.headers.get("content-type", "")
            if takes_body and not is_json(content_type) and await strict.body():
                raise BODY_NO_JSON_TYPE()
            return await handle(strict)

        return handle_json
