"""Cross-origin requests: scripts of any origin may call the API, and none may read the pages."""

from collections.abc import Iterable, Mapping

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

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

    ``folders``: paths below which all are pages, and what shows their refusals.
    """

    def __init__(
        self, app: ASGIApp, *, pages: Iterable[APIRouter], folders: Mapping[str, ProblemPage]
    ) -> None:
        self._app = app
        self._api = CORSMiddleware(
            app,
            allow_origins=["*"],
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=EXPOSED_HEADERS,
        )
        self._paths = {
            route.path for each in pages for route in each.routes if isinstance(route, APIRoute)
        }
        self._folders = folders

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        folder = self._folders.get("/" + path[1:].partition("/")[0])
        if folder is not None:
            mark_as_page(scope, folder)
            await self._app(scope, receive, send)
        elif path.rstrip("/") in self._paths:
            mark_as_page(scope)
            await self._app(scope, receive, send)
        elif all(name != b"origin" for name, _ in scope["headers"]):
            # The most frequent case: the answer only needs to say that it depends on the origin.
            scope["pressroom.headers"].append((b"vary", b"Origin"))
            await self._app(scope, receive, send)
        else:
            await self._api(scope, receive, send)
