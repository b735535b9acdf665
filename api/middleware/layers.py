"""The ASGI middleware that every request passes through, in order."""

import asyncio
import re
import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from urllib.parse import quote

import structlog
from fastapi import APIRouter, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.drain import Drain
from api.errors import internal_error, problem_response
from api.html.problems import (
    ProblemRenderer,
    is_reader_page,
    mark_page_request,
    mark_reader_request,
)
from api.metrics import observe_request
from api.middleware.body_limits import BodyLimitMiddleware
from api.middleware.headers import (
    FinalNewlineMiddleware,
    ForwardingMiddleware,
    HeadersMiddleware,
    PathMiddleware,
    PlainCookiesMiddleware,
    VersionMiddleware,
)
from api.waiting.disconnects import CallerDisconnected
from core.errors.requests import PATH_TOO_LONG, REQUEST_TOO_SLOW, ROUTE_NOT_FOUND
from core.logging import get_logger
from core.settings import Settings
from core.telemetry import spans
from services import event_origins
from services.event_origins import Origin
from services.subscriptions.page_urls import UNSUBSCRIBE_PATH

log = get_logger("api.auth")

# Above the sum of the longest time for a body (90 s) and the longest wait that a caller may ask for
# (60 s).
DEADLINE_SECONDS = 170.0


class DeadlineMiddleware:
    """Refuses a request whose answer has not begun in time, for a slow handler or a slow sender."""

    def __init__(self, app: ASGIApp, seconds: float = DEADLINE_SECONDS) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_and_release(message: Message) -> None:
            nonlocal started
            if not started:
                started = True
                deadline.reschedule(None)
            await send(message)

        try:
            async with asyncio.timeout(self._seconds) as deadline:
                scope["pressroom.extend_deadline"] = lambda: deadline.reschedule(
                    asyncio.get_running_loop().time() + self._seconds
                )
                await self._app(scope, receive, send_and_release)
        except TimeoutError:
            if started:
                raise
            late = REQUEST_TOO_SLOW(seconds=self._seconds)
            await problem_response(late)(scope, receive, send)


def extend_deadline(scope: Scope) -> None:
    """Restart the deadline: this body may take longer than it, and is still arriving."""
    scope["pressroom.extend_deadline"]()


# The headers that scripts of other origins may read, beside those that browsers always let them
# read. docs/conventions.md lists them.
EXPOSED_HEADERS = (
    "X-Request-ID",
    "Location",
    "Link",
    "Retry-After",
    "Pressroom-Source",
    "Pressroom-Version",
    "Deprecation",
    "Sunset",
    "Idempotent-Replayed",
    "Preference-Applied",
    "RateLimit",
    "RateLimit-Policy",
    "WWW-Authenticate",
    "ETag",
    "Accept-Ranges",
    "Content-Range",
    "Content-Disposition",
)


class ApiCorsMiddleware:
    """Allows scripts of any origin to call the API, without credentials, but not the pages.

    ``reader_pages``: those that readers get, in their language. ``folders``: paths below which all
    are pages, and what shows their errors.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        pages: Iterable[APIRouter],
        reader_pages: Iterable[APIRouter],
        folders: Mapping[str, ProblemRenderer],
    ) -> None:
        self._app = app
        self._api = CORSMiddleware(
            app,
            allow_origins=["*"],
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=EXPOSED_HEADERS,
        )
        self._pages = _paths_of(pages)
        self._reader_pages = _paths_of(reader_pages)
        self._folders = folders

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].rstrip("/")
        if self._reader_pages.fullmatch(path):
            mark_reader_request(scope)
            await self._app(scope, receive, send)
        elif self._pages.fullmatch(path):
            mark_page_request(scope)
            await self._app(scope, receive, send)
        elif folder := self._folders.get("/" + path[1:].partition("/")[0]):
            mark_page_request(scope, folder)
            await self._app(scope, receive, send)
        elif all(name != b"origin" for name, _ in scope["headers"]):
            # The most frequent case: the answer only needs to say that it depends on the origin.
            scope["pressroom.headers"].append((b"vary", b"Origin"))
            await self._app(scope, receive, send)
        else:
            await self._api(scope, receive, send)


def _paths_of(routers: Iterable[APIRouter]) -> re.Pattern[str]:
    """Return a pattern of the paths of all routes, with those that have parameters."""
    routes = [route for each in routers for route in each.routes if isinstance(route, APIRoute)]
    patterns = {re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route.path)) for route in routes}
    return re.compile("|".join(sorted(patterns)))


# Where forms on any site, and mail programs, send what readers want.
_SUBMISSION = re.compile(r"/subscriptions/[^/]+")
_ONE_CLICK = re.compile(r"/subscriptions/[^/]+/delete")
# For proxies and `pressroom doctor`.
_HEALTH = "/healthz"
_FORMS = (b"application/x-www-form-urlencoded", b"multipart/form-data")


class PagesHostMiddleware:
    """Serves readers' pages on a host of their own, and nothing else on this host.

    Owners write texts of readers' pages. On the host of the login, a page with an owner's texts
    could imitate the login and deceive people and password managers.

    This middleware comes after the middleware that recognises readers' pages.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings, cookies: Collection[str]) -> None:
        self._app = app
        self._base, self._host = settings.pages_base, settings.pages_host
        self._cookies = cookies
        self._credentials = {b"authorization", settings.api_key_header.lower().encode()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, is_post = scope["path"].rstrip("/"), scope["method"] == "POST"
        is_page, is_submission = is_reader_page(scope), bool(_SUBMISSION.fullmatch(path))
        if _header(scope, b"host").lower() == self._host.encode():
            is_sent = is_post and (is_submission or _ONE_CLICK.fullmatch(path))
            if is_page or is_sent or path == _HEALTH:
                await self._app(self._without_credentials(scope), receive, send)
            else:
                await problem_response(ROUTE_NOT_FOUND())(scope, receive, send)
        # A mail program does one click by a mail that is older than the setting, too, and RFC 8058
        # forbids a redirect there.
        elif (is_page and not (is_post and path == UNSUBSCRIBE_PATH)) or (
            is_submission and is_post and _header(scope, b"content-type").startswith(_FORMS)
        ):
            query = scope["query_string"].decode("latin-1")
            url = self._base + quote(scope["path"]) + (f"?{query}" if query else "")
            moved = Response(status_code=308, headers={"Location": url})
            await moved(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _without_credentials(self, scope: Scope) -> Scope:
        """Return the request without credentials, and with readers' own cookies alone."""
        cookies = cookie_parser(_header(scope, b"cookie").decode("latin-1"))
        dropped = {*self._credentials, b"cookie"}
        headers = [each for each in scope["headers"] if each[0] not in dropped]
        kept = [f"{name}={cookies[name]}" for name in self._cookies if name in cookies]
        if kept:
            headers.append((b"cookie", "; ".join(kept).encode("latin-1")))
        return {**scope, "headers": headers}


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for each, value in scope["headers"] if each == name), b"")


# A caller's own id of the request that is taken over.
_SANE = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
MAX_LOGGED_PATH_CHARACTERS = 500
# Asked every few seconds, by machines.
_UNTRACED = frozenset({"/healthz", "/readyz", "/metrics"})


class RequestMiddleware:
    """Gives each request its id, the origin of its events, its span, log line and metrics."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        sent = headers.get("x-request-id")
        request_id = sent if sent and _SANE.match(sent) else secrets.token_hex(16)
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
        # A path may name a person, so the route takes its place at the end.
        is_traced = scope["path"] not in _UNTRACED
        parent = headers.get("traceparent")
        with spans.request_span(scope["method"], parent) if is_traced else nullcontext():
            try:
                await self._app(scope, receive, watching_send)
            finally:
                seconds = time.perf_counter() - began
                method, path = scope["method"], scope["path"]
                route = getattr(scope.get("route"), "path", "unmatched")
                spans.note_route(method, route, status)
                observe_request(method, route, status, seconds)
                ms = round(seconds * 1000, 1)
                log.info("request", method=method, path=_loggable(path), status=status, ms=ms)


def _loggable(path: str) -> str:
    """Return the path for the log, with ``{address}`` in place of e-mail addresses."""
    parts = path.split("/")
    shown = "/".join("{address}" if "@" in each else each for each in parts)
    return shown[:MAX_LOGGED_PATH_CHARACTERS]


# No route needs a longer path. The longest segment is a percent-encoded e-mail address.
MAX_PATH_BYTES = 2048


class PathLengthMiddleware:
    """Refuses a request whose path is too long, before other code searches the path.

    Only the middleware around this class handles such a path: it adds the response headers and
    logs the request.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(scope["raw_path"]) > MAX_PATH_BYTES:
            refusal = problem_response(PATH_TOO_LONG(most=MAX_PATH_BYTES))
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)


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


class RequestLayers:
    """Passes requests through the layers, the first of them outermost.

    The server's own messages, such as its start and end, go past them.
    """

    def __init__(self, app: ASGIApp, *, layers: Sequence[Middleware]) -> None:
        self._past = self._through = app
        for layer, arguments, options in reversed(layers):
            self._through = layer(self._through, *arguments, **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._through if scope["type"] == "http" else self._past)(scope, receive, send)


def request_layers(
    settings: Settings,
    drain: Drain,
    *,
    own_cookies: Collection[str] | None,
    pages: Sequence[APIRouter],
    reader_pages: Sequence[APIRouter],
    folders: Mapping[str, ProblemRenderer],
) -> list[Middleware]:
    """Return what each request passes, the outermost first.

    Args:
        own_cookies: the cookies that readers' own host knows; ``None`` where there is no such host.
        pages: the routers of HTML pages, which scripts of other origins can't read.
        reader_pages: those among them that readers get, in their language.
        folders: the first segments of paths below which there are pages alone, and what shows
            their errors.
    """
    own_host = (
        [Middleware(PagesHostMiddleware, settings=settings, cookies=own_cookies)]
        if own_cookies
        else []
    )
    layers = [
        Middleware(ForwardingMiddleware, settings=settings),
        Middleware(HeadersMiddleware, settings=settings, drain=drain),
        Middleware(FinalNewlineMiddleware),
        Middleware(RequestMiddleware),
        Middleware(PathLengthMiddleware),
        Middleware(PlainCookiesMiddleware),
        Middleware(ApiCorsMiddleware, pages=pages, reader_pages=reader_pages, folders=folders),
        *own_host,
        Middleware(VersionMiddleware),
        Middleware(InternalErrorMiddleware),
        Middleware(PathMiddleware),
        Middleware(DeadlineMiddleware),
        Middleware(BodyLimitMiddleware),
    ]
    return [Middleware(RequestLayers, layers=layers)]
