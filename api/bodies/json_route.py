from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from core.refusals.requests import BODY_NO_JSON_TYPE

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class JsonRequest(Request):
    async def json(self) -> Any:
        """By the letter of RFC 8259: no NaN, no other encoding than UTF-8, bounded depth."""
        return orjson.loads((await self.body()).removeprefix(BYTE_ORDER_MARK))


class JsonRoute(APIRoute):
    """A route whose body, where it has one, is JSON and nothing else."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        takes_body = self.body_field is not None

        async def handle_json(request: Request) -> Response:
            strict = JsonRequest(request.scope, request.receive)
            if takes_body and not _says_json(strict) and await strict.body():
                raise BODY_NO_JSON_TYPE()
            return await handle(strict)

        return handle_json


def _says_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind.startswith("application/") and (kind.endswith(("/json", "+json")))
