"""ASGI middleware that rewrites the headers or the path of each request."""

from typing import cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from api.caller_description import PEER
from api.drain import Drain
from api.errors import problem_response
from api.html.problems import is_for_browser
from core.errors.requests import VERSION_UNKNOWN
from core.logging import get_logger
from core.settings import Settings

log = get_logger(__name__)

_Header = tuple[bytes, bytes]

_ALWAYS: tuple[_Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
_PAGE: tuple[_Header, ...] = (
    # No page of ours uses any of these; a script that came into one must not either.
    (
        b"permissions-policy",
        b"camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
    # A page that opens ours in a window gets no hold on that window.
    (b"cross-origin-opener-policy", b"same-origin"),
)
# Only pages may load, run or frame anything: other answers get the strictest policy.
_NO_PAGE: _Header = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
# For a caller's own data. Shared caches respect Authorization, but don't know which other headers
# carry credentials.
_PRIVATE: _Header = (b"cache-control", b"no-store")
_HSTS = b"strict-transport-security"
# The caller's next call goes to a process that stays.
_CLOSE: _Header = (b"connection", b"close")


class HeadersMiddleware:
    """Adds the headers of every answer for browsers and caches, unless the answer has its own, and
    the headers that inner layers put into ``scope["pressroom.headers"]``. While the process drains,
    each answer ends its connection. The outermost layer that answers."""

    def __init__(self, app: ASGIApp, *, settings: Settings, drain: Drain) -> None:
        self._app = app
        self._drain = drain
        # A browser that has reached us over TLS must use TLS from then on (HSTS).
        hsts = b"max-age=31536000" + (b"; includeSubDomains" if settings.hsts_subdomains else b"")
        is_https = settings.public_url.scheme == "https"
        self._always = _ALWAYS + (((_HSTS, hsts),) if is_https else ())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        added: list[_Header] = []
        scope["pressroom.headers"] = added

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = dict(message["headers"])
                kind = known.get(b"content-type", b"")
                is_page = kind.startswith(b"text/html")
                wanted = [*self._always, *(_PAGE if is_page else (_NO_PAGE,))]
                if kind.endswith(b"json"):
                    wanted.append(_PRIVATE)
                missing = [header for header in wanted if header[0] not in known]
                message["headers"] = [*message["headers"], *missing, *added]
                if self._drain.has_begun:
                    message["headers"].append(_CLOSE)
            await send(message)

        await self._app(scope, receive, send_with_headers)


VERSION_HEADER = "Pressroom-Version"
# The versions of the API's contract, newest first. Each version is the date of a breaking change
# (docs/conventions.md). Clients that name no version get the oldest version, so that a new version
# doesn't break these clients.
VERSIONS = ("2026-11-21",)

_NAME = VERSION_HEADER.lower().encode()
_OLDEST = VERSIONS[-1].encode()
_KNOWN = {version.encode() for version in VERSIONS}


class VersionMiddleware:
    """Says in each answer which version it is of, and refuses calls that ask for an unknown one.

    Pages for people have no version.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if is_for_browser(scope):
            await self._app(scope, receive, send)
            return
        asked = [value.strip() for name, value in scope["headers"] if name == _NAME]
        is_known = _KNOWN.issuperset(asked) and len(set(asked)) <= 1
        version = asked[0] if asked and is_known else _OLDEST
        scope["pressroom.headers"].append((_NAME, version))
        if is_known:
            await self._app(scope, receive, send)
        else:
            refused = VERSION_UNKNOWN(known=", ".join(VERSIONS))
            await problem_response(refused)(scope, receive, send)


class PlainCookiesMiddleware:
    """Drops cookies that contain a quotation mark, because they can be slow to parse.

    Some versions of Python take quadratic time to parse a quoted value. FastAPI parses the cookies
    of every request. Our own cookies contain no quotation marks.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope["headers"]
        if any(name == b"cookie" and b'"' in value for name, value in headers):
            scope["headers"] = [
                (name, _without_quoted(value) if name == b"cookie" else value)
                for name, value in headers
            ]
        await self._app(scope, receive, send)


def _without_quoted(cookies: bytes) -> bytes:
    return b";".join(each for each in cookies.split(b";") if b'"' not in each)


class FinalNewlineMiddleware:
    """Ends each JSON answer with a newline, so that a shell's prompt begins a line of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_json = False

        async def send_line(message: Message) -> None:
            nonlocal is_json
            if message["type"] == "http.response.start":
                headers = message["headers"]
                is_json = dict(headers).get(b"content-type", b"").endswith(b"json")
                if is_json:
                    message["headers"] = [
                        (name, b"%d" % (int(value) + 1) if name == b"content-length" else value)
                        for name, value in headers
                    ]
            elif is_json and not message.get("more_body", False):
                message["body"] = message.get("body", b"") + b"\n"
            await send(message)

        await self._app(scope, receive, send_line)


class ForwardingMiddleware:
    """Takes the caller's IP address and scheme from a trusted proxy's headers. The outermost layer.

    A proxy that the settings don't name makes all of its callers one, so the log says once that
    there may be such a proxy. Any caller can send such a header, so the log says it at most once.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        networks = list(settings.forwarding_networks())
        taking = ProxyHeadersMiddleware(app, trusted_hosts=networks)  # type: ignore[arg-type]
        self._trusted = taking.trusted_hosts
        # uvicorn and Starlette have different types for the same protocol.
        self._app = cast("ASGIApp", taking)
        self._has_told = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Kept as the connection has it, since the forwarded address takes its place.
        scope[PEER] = scope.get("client")
        if not self._has_told and any(name == b"x-forwarded-for" for name, _ in scope["headers"]):
            address = scope["client"][0] if scope.get("client") else ""
            if address not in self._trusted:
                self._has_told = True
                log.warning("proxy.not_trusted", address=address)
        await self._app(scope, receive, send)


_HEAD = "pressroom.head"


class PathMiddleware:
    """Accepts a trailing slash without a redirect, and HEAD on every route that has GET.

    The server drops the body of an answer to HEAD; a handler whose body is expensive asks
    ``is_head`` and leaves it out.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        inner = {**scope, "path": scope["path"].rstrip("/") or "/"}
        if scope["method"] == "HEAD":
            inner |= {"method": "GET", _HEAD: True}
        try:
            await self._app(inner, receive, send)
        finally:
            # The metrics middleware is outside of this one and labels by route.
            scope["route"] = inner.get("route")


def is_head(scope: Scope) -> bool:
    """Return whether the request is a HEAD, which handlers see as a GET."""
    return _HEAD in scope
