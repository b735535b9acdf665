"""Makes mail providers retry a request with reports if Pressroom is temporarily unavailable.

Amazon SNS gets the status 503, because SNS retries a request only after a 5xx status. All other
providers get the status 429, because some discard a report after a 5xx status.
"""

import re
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import problem_response
from core.errors.senders import SENDER_BUSY, SENDER_BUSY_FOR_SNS
from services.senders.intake import SNS_HEADER

INTAKE_PATH = re.compile(r"/senders/(?P<id>[^/]+)/events/?\Z")
# The HTTP statuses with which the API responds if the API itself or the database is unavailable or
# too slow.
_BUSY_STATUSES = frozenset(
    {
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


class IntakeBusyMiddleware:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST" or not INTAKE_PATH.match(scope["path"]):
            await self._app(scope, receive, send)
            return
        is_sns = SNS_HEADER in Headers(scope=scope)
        error = SENDER_BUSY_FOR_SNS if is_sns else SENDER_BUSY
        is_replaced = False

        async def send_or_replace(message: Message) -> None:
            nonlocal is_replaced
            if message["type"] == "http.response.start":
                status = message["status"]
                is_limited = is_sns and status == HTTPStatus.TOO_MANY_REQUESTS
                is_replaced = is_limited or status in _BUSY_STATUSES
                if is_replaced:
                    await problem_response(error())(scope, receive, send)
                    return
            if not is_replaced:
                await send(message)

        await self._app(scope, receive, send_or_replace)
