"""Assigns an id to each request, and records each request in logs, traces and metrics."""

import random
import re
import time
from contextlib import nullcontext
from http import HTTPStatus
from urllib.parse import unquote

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import ERROR_CODES_KEY
from api.metrics import observe_request
from core.logging import get_logger
from core.telemetry import spans
from services import event_origins
from services.access.api_requests import NewRequest
from services.event_origins import CredentialKind, Origin

log = get_logger("api.auth")

MAX_LOGGED_PATH_CHARACTERS = 500
# The pattern that a request id from a caller must match.
_VALID_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
# The paths that machines request every few seconds, which aren't traced.
_UNTRACED_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})


class RequestMiddleware:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        sent_id = headers.get("x-request-id")
        is_valid = sent_id is not None and _VALID_REQUEST_ID.match(sent_id)
        # Optimization: creating HMACs and request ids without switching threads (decision 17).
        # ``secrets`` releases Python's global lock, so that another thread takes the lock. Request
        # ids aren't secret.
        request_id = sent_id if sent_id and is_valid else f"{random.getrandbits(128):032x}"
        client = scope.get("client")
        origin = Origin(client[0] if client else None, headers.get("user-agent"))
        event_origins.set_origin(origin)
        scope["pressroom.headers"].append((b"x-request-id", request_id.encode()))
        scope[ERROR_CODES_KEY] = []
        started_at = time.perf_counter()
        # nginx logs the status 499 if a caller disconnects before the response.
        status = 499

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        # Uvicorn runs each request in a separate context, so the request id isn't kept after the
        # request.
        structlog.contextvars.bind_contextvars(request_id=request_id)
        # The trace span contains the route instead of the path, because a path can contain an
        # e-mail address.
        is_traced = scope["path"] not in _UNTRACED_PATHS
        parent = headers.get("traceparent")
        with spans.request_span(scope["method"], parent) if is_traced else nullcontext():
            try:
                await self._app(scope, receive, send_and_note_status)
            finally:
                seconds = time.perf_counter() - started_at
                method = scope["method"]
                route = getattr(scope.get("route"), "path", "unmatched")
                spans.note_route(method, route, status)
                observe_request(method, route, status, seconds)
                ms = round(seconds * 1000, 1)
                credential = origin.credential
                # The request log of an API key contains only requests that Pressroom authenticated
                # with the key. ``credential`` can contain a key although the request was rejected
                # with the status 401, for example if the key was revoked after Pressroom had
                # cached the key.
                if (
                    credential is not None
                    and credential.kind is CredentialKind.KEY
                    and status != HTTPStatus.UNAUTHORIZED
                ):
                    assert credential.id is not None
                    codes = scope[ERROR_CODES_KEY]
                    request = NewRequest(
                        key_id=credential.id,
                        started_at=time.time() - seconds,
                        method=method,
                        route=route,
                        status=status,
                        code=codes[-1] if codes else None,
                        request_id=request_id,
                        milliseconds=round(ms),
                    )
                    scope["app"].state.pressroom.request_log.record(request)
                log.info(
                    "request",
                    method=method,
                    path=_mask_addresses(scope),
                    status=status,
                    ms=ms,
                )


def _mask_addresses(scope: Scope) -> str:
    path: str = scope["path"]
    if "@" not in path:
        return path[:MAX_LOGGED_PATH_CHARACTERS]
    # Split the path before decoding it, because an address can contain an encoded slash.
    raw_path = scope.get("raw_path") or path.encode()
    segments = map(unquote, raw_path.decode(errors="replace").split("/"))
    masked = "/".join("{address}" if "@" in segment else segment for segment in segments)
    return masked[:MAX_LOGGED_PATH_CHARACTERS]
