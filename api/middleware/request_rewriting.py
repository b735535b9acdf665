"""Middlewares that change the IP address, cookies, path or method of a request before routing."""

import re
from typing import cast
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from api.caller_description import PEER
from core.logging import get_logger
from core.settings import Settings

log = get_logger(__name__)

# Stands for an encoded slash in a path. An encoded slash is a part of an address, and
# doesn't separate segments of the path. No address can contain this private-use character.
ENCODED_SLASH = "\ue02f"
# The key that marks a HEAD request in the ASGI scope.
_HEAD_KEY = "pressroom.head"
_ENCODED_SLASH_IN_PATH = re.compile("%2f", re.IGNORECASE)


class ForwardingMiddleware:
    """Reads the caller's IP address and URL scheme from the headers of a trusted proxy.

    Behind an untrusted proxy, all callers seem to have the proxy's IP address, so a warning is
    logged. It is logged only once, because any caller could fill the log by sending a proxy's
    headers.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        networks = list(settings.forwarding_networks())
        proxy_headers = ProxyHeadersMiddleware(app, trusted_hosts=networks)  # type: ignore[arg-type]
        self._trusted = proxy_headers.trusted_hosts
        # Cast the application, because Uvicorn and Starlette define different types for ASGI
        # applications.
        self._app = cast("ASGIApp", proxy_headers)
        self._has_warned = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Store the peer's IP address before Uvicorn replaces it with the forwarded IP address.
        scope[PEER] = scope.get("client")
        if not self._has_warned and any(name == b"x-forwarded-for" for name, _ in scope["headers"]):
            address = scope["client"][0] if scope.get("client") else ""
            if address not in self._trusted:
                self._has_warned = True
                log.warning("proxy.not_trusted", address=address)
        await self._app(scope, receive, send)


class PlainCookiesMiddleware:
    """Drops cookies with a quotation mark, which Pressroom's own cookies never contain.

    In some versions of Python, the time for parsing a quoted cookie grows quadratically with its
    length. FastAPI parses the cookies of every request.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope["headers"]
        if any(name == b"cookie" and b'"' in value for name, value in headers):
            scope["headers"] = [
                (name, _drop_quoted_cookies(value) if name == b"cookie" else value)
                for name, value in headers
            ]
        await self._app(scope, receive, send)


def _drop_quoted_cookies(cookies: bytes) -> bytes:
    return b";".join(cookie for cookie in cookies.split(b";") if b'"' not in cookie)


class PathMiddleware:
    """Accepts paths with a trailing or an encoded slash, and accepts HEAD for all GET routes.

    Uvicorn drops the body of a response to a HEAD request. If the body is expensive, a handler
    should check ``is_head`` and omit the body.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        inner_scope = {**scope, "path": _read_path(scope).rstrip("/") or "/"}
        if scope["method"] == "HEAD":
            inner_scope |= {"method": "GET", _HEAD_KEY: True}
        try:
            await self._app(inner_scope, receive, send)
        finally:
            # ``RequestMiddleware`` needs the route in the outer ASGI scope for metrics and traces.
            scope["route"] = inner_scope.get("route")


def _read_path(scope: Scope) -> str:
    raw_path = scope.get("raw_path") or b""
    if b"%2" not in raw_path:
        return str(scope["path"])
    return unquote(_ENCODED_SLASH_IN_PATH.sub(ENCODED_SLASH, raw_path.decode("ascii")))


def is_head(scope: Scope) -> bool:
    """Return whether the caller sent a HEAD request, which handlers receive as GET."""
    return _HEAD_KEY in scope
