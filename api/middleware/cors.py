"""Cross-origin requests: scripts of any origin may call the API, and none may read the pages."""

import re
from collections.abc import Iterable, Mapping

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from api.pages.audience import mark_as_reader_page
from api.pages.problems import ProblemPage, mark_as_page

# The headers that scripts of other origins may read, beside those that browsers always let them
# read. docs/api.md lists them.
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
    are pages, and what shows their refusals.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        pages: Iterable[APIRouter],
        reader_pages: Iterable[APIRouter],
        folders: Mapping[str, ProblemPage],
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
        folder = self._folders.get("/" + path[1:].partition("/")[0])
        if folder is not None:
            mark_as_page(scope, folder)
            await self._app(scope, receive, send)
        elif self._reader_pages.fullmatch(path):
            mark_as_reader_page(scope)
            await self._app(scope, receive, send)
        elif self._pages.fullmatch(path):
            mark_as_page(scope)
            await self._app(scope, receive, send)
        elif all(name != b"origin" for name, _ in scope["headers"]):
            # The most frequent case: the answer only needs to say that it depends on the origin.
            scope["pressroom.headers"].append((b"vary", b"Origin"))
            await self._app(scope, receive, send)
        else:
            await self._api(scope, receive, send)


def _paths_of(routers: Iterable[APIRouter]) -> re.Pattern[str]:
    """What the paths of all routes match, those with parameters too."""
    routes = [route for each in routers for route in each.routes if isinstance(route, APIRoute)]
    patterns = {re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route.path)) for route in routes}
    return re.compile("|".join(sorted(patterns)))
