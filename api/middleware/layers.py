"""Lists the ASGI middleware for all requests, from the outermost to the innermost."""

from collections.abc import Collection, Mapping, Sequence

from fastapi import APIRouter
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.drain import Drain
from api.errors import internal_error, problem_response
from api.html.problems import ProblemRenderer
from api.middleware.admission import AdmissionMiddleware
from api.middleware.body_limits import BodyLimitMiddleware
from api.middleware.cors import ApiCorsMiddleware
from api.middleware.deadlines import DeadlineMiddleware
from api.middleware.intake_busy import IntakeBusyMiddleware
from api.middleware.pages_host import PagesHostMiddleware
from api.middleware.request_records import RequestMiddleware
from api.middleware.request_rewriting import (
    ForwardingMiddleware,
    PathMiddleware,
    PlainCookiesMiddleware,
)
from api.middleware.response_headers import FinalNewlineMiddleware, HeadersMiddleware
from api.middleware.versions import VersionMiddleware
from api.waiting.disconnects import CallerDisconnected
from core.errors.requests import PATH_TOO_LONG
from core.logging import get_logger
from core.settings import Settings

log = get_logger("api.auth")

# The maximum length of a request's path. No route needs a path above this length, because the
# longest segment is a percent-encoded e-mail address.
MAX_PATH_BYTES = 2048


class PathLengthMiddleware:
    """Rejects requests with a very long path, before regular expressions search the path.

    The middleware around this one also adds response headers and a log line to error responses.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(scope["raw_path"]) > MAX_PATH_BYTES:
            response = problem_response(PATH_TOO_LONG(most=MAX_PATH_BYTES))
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class InternalErrorMiddleware:
    """Returns an error response without details after an unexpected exception.

    ``ApiCorsMiddleware`` must wrap this middleware, so that scripts of other sites can read the
    error.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_started = False

        async def send_and_note_start(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note_start)
        except (CallerDisconnected, ClientDisconnect):
            # A caller who has disconnected gets no response. The access log shows the status 499
            # for the disconnected caller's request.
            return
        except Exception:  # Any unexpected exception becomes an error response.
            log.exception("request.broke")
            if not has_started:
                await internal_error()(scope, receive, send)


class RequestLayers:
    """Passes HTTP requests, but no other ASGI events such as startup, through the middleware."""

    def __init__(self, app: ASGIApp, *, layers: Sequence[Middleware]) -> None:
        self._app = app
        self._layered_app = app
        for layer, arguments, options in reversed(layers):
            self._layered_app = layer(self._layered_app, *arguments, **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._layered_app if scope["type"] == "http" else self._app
        await app(scope, receive, send)


def build_request_layers(
    settings: Settings,
    drain: Drain,
    *,
    reader_cookies: Collection[str] | None,
    pages: Sequence[APIRouter],
    reader_pages: Sequence[APIRouter],
    folders: Mapping[str, ProblemRenderer],
) -> list[Middleware]:
    """Return the middleware.

    Args:
        reader_cookies: the cookies that the separate host of readers' pages accepts, or ``None`` if
            readers' pages have no separate host.
        pages: the routers of HTML pages.
        reader_pages: the routers of HTML pages in the reader's language.
        folders: maps the first segment of a path, such as ``/console``, to the function that
            renders its error pages.
    """
    pages_host = (
        [Middleware(PagesHostMiddleware, settings=settings, cookies=reader_cookies)]
        if reader_cookies
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
        *pages_host,
        Middleware(VersionMiddleware),
        Middleware(IntakeBusyMiddleware),
        Middleware(AdmissionMiddleware, settings=settings),
        Middleware(InternalErrorMiddleware),
        Middleware(PathMiddleware),
        Middleware(DeadlineMiddleware),
        Middleware(BodyLimitMiddleware),
    ]
    return [Middleware(RequestLayers, layers=layers)]
