import time

import structlog
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import internal_error
from api.metrics.requests import observe_request
from api.request_ids import adopt_request_id
from api.waiting.disconnects import CallerDisconnected
from core.logging import get_logger

log = get_logger("api.access")


class RequestMiddleware:
    """Gives each request its id, its log line and its metrics."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = adopt_request_id(Headers(scope=scope).get("x-request-id"))
        scope["pressroom.headers"].append((b"x-request-id", request_id.encode()))
        exchange = _Exchange(scope, send)
        # The server runs each request in a context of its own, which ends with the request.
        structlog.contextvars.bind_contextvars(request_id=request_id)
        try:
            await self._app(scope, receive, exchange.send)
        finally:
            exchange.record()


class InternalErrorMiddleware:
    """Answers a request whose handler broke. Inside of CORS, so that scripts can read it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watching_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watching_send)
        except (CallerDisconnected, ClientDisconnect):
            # The caller has left; the log has the request as 499.
            return
        except Exception:  # the caller of a broken request gets an answer without details
            log.exception("request.broke")
            if not started:
                await internal_error()(scope, receive, send)


class _Exchange:
    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._started = time.perf_counter()
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    def record(self) -> None:
        seconds = time.perf_counter() - self._started
        route = getattr(self._scope.get("route"), "path", "unmatched")
        # nginx's status for a caller who left before the answer.
        status = self.status or 499
        observe_request(self._scope["method"], route, status, seconds)
        log.info(
            "request",
            method=self._scope["method"],
            path=self._scope["path"],
            status=status,
            ms=round(seconds * 1000, 1),
        )
