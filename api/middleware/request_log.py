import re
import time
from contextlib import AbstractContextManager, nullcontext

import structlog
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import internal_error
from api.metrics.requests import observe_request
from api.request_ids import adopt_request_id
from api.waiting.disconnects import CallerDisconnected
from core.logging import get_logger
from core.telemetry import spans
from services.events import event_origins
from services.events.event_origins import Origin

log = get_logger("api.access")

# A part of a path that names a member by the address, which no log keeps.
_ADDRESS = re.compile("[^/]*@[^/]*")
# Asked every few seconds, by machines.
_UNTRACED = frozenset({"/healthz", "/readyz", "/metrics"})


class RequestMiddleware:
    """Gives each request its id, the origin of its events, its span, log line and metrics."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        request_id = adopt_request_id(headers.get("x-request-id"))
        client = scope.get("client")
        event_origins.begin(Origin(client[0] if client else None, headers.get("user-agent")))
        scope["pressroom.headers"].append((b"x-request-id", request_id.encode()))
        began = time.perf_counter()
        # Until an answer begins: nginx's status for a caller who left before it.
        status = 499

        async def watching_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        # The server runs each request in a context of its own, which ends with the request.
        structlog.contextvars.bind_contextvars(request_id=request_id)
        with _span(scope, headers):
            try:
                await self._app(scope, receive, watching_send)
            finally:
                seconds = time.perf_counter() - began
                method, path = scope["method"], scope["path"]
                route = getattr(scope.get("route"), "path", "unmatched")
                spans.note_route(method, route, status)
                observe_request(method, route, status, seconds)
                ms = round(seconds * 1000, 1)
                shown = _ADDRESS.sub("{address}", path)
                log.info("request", method=method, path=shown, status=status, ms=ms)


def _span(scope: Scope, headers: Headers) -> AbstractContextManager[None]:
    if scope["path"] in _UNTRACED:
        return nullcontext()
    # A path may name a person, so the route takes its place at the end.
    return spans.request_span(scope["method"], headers.get("traceparent"))


class InternalErrorMiddleware:
    """Answers a request whose handler broke. Inside of CORS, so that scripts can read it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
