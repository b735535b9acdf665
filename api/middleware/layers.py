from collections.abc import Mapping, Sequence

from fastapi import APIRouter
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from api.health.drain import Drain
from api.middleware.body_limits import BodyLimitMiddleware
from api.middleware.cors import ApiCorsMiddleware
from api.middleware.deadlines import DeadlineMiddleware
from api.middleware.final_newline import FinalNewlineMiddleware
from api.middleware.forwarding import ForwardingMiddleware
from api.middleware.headers import HeadersMiddleware
from api.middleware.paths import PathMiddleware
from api.middleware.request_log import InternalErrorMiddleware, RequestMiddleware
from api.middleware.versions import VersionMiddleware
from api.pages.problems import ProblemPage
from core.settings import Settings


class RequestLayers:
    """Passes requests through the layers, the first of them outermost.

    What else the server sends, such as its own start and end, goes past them.
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
    pages: Sequence[APIRouter],
    reader_pages: Sequence[APIRouter],
    folders: Mapping[str, ProblemPage],
) -> list[Middleware]:
    """What each request passes, the outermost first.

    Args:
        pages: the routers of HTML pages, which scripts of other origins can't read.
        reader_pages: those among them that readers get, in their language.
        folders: the first segments of paths below which there are pages alone, and what shows
            their refusals.
    """
    layers = [
        Middleware(ForwardingMiddleware, settings=settings),
        Middleware(HeadersMiddleware, settings=settings, drain=drain),
        Middleware(FinalNewlineMiddleware),
        Middleware(RequestMiddleware),
        Middleware(ApiCorsMiddleware, pages=pages, reader_pages=reader_pages, folders=folders),
        Middleware(VersionMiddleware),
        Middleware(InternalErrorMiddleware),
        Middleware(PathMiddleware),
        Middleware(DeadlineMiddleware),
        Middleware(BodyLimitMiddleware),
    ]
    return [Middleware(RequestLayers, layers=layers)]
