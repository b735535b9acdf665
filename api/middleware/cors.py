"""Allows scripts of other sites to call the API by cross-origin resource sharing (CORS)."""

import re
from collections.abc import Iterable, Mapping

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from api.html.problems import ProblemRenderer, mark_page_request, mark_reader_request

# The response headers that scripts of other origins may read, in addition to the headers that
# browsers always expose (docs/conventions.md).
EXPOSED_HEADERS = (
    "X-Request-ID",
    "Location",
    "Link",
    "Retry-After",
    "Pressroom-Account",
    "Pressroom-Source",
    "Pressroom-Version",
    "Deprecation",
    "Sunset",
    "Idempotent-Replayed",
    "Preference-Applied",
    "Pressroom-Ignored",
    "RateLimit",
    "RateLimit-Policy",
    "WWW-Authenticate",
    "ETag",
    "Accept-Ranges",
    "Content-Range",
    "Content-Disposition",
)


class ApiCorsMiddleware:
    """Allows scripts from any origin to call the API without cookies.

    Scripts from foreign origins can't read HTML pages. Requests for HTML pages are marked, so that
    their errors become pages too.
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
        self._pages = _compile_paths(pages)
        self._reader_pages = _compile_paths(reader_pages)
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
            # Starlette's CORS middleware isn't needed without an ``Origin`` header. ``Vary`` tells
            # caches that the response depends on the ``Origin`` header.
            scope["pressroom.headers"].append((b"vary", b"Origin"))
            await self._app(scope, receive, send)
        else:
            await self._api(scope, receive, send)


def _compile_paths(routers: Iterable[APIRouter]) -> re.Pattern[str]:
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    patterns = {re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route.path)) for route in routes}
    return re.compile("|".join(sorted(patterns)))
