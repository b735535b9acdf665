"""Cross-origin requests: scripts of any origin may call the API, and none may read the pages."""

from collections.abc import Iterable

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from api.pages.problems import mark_as_page

_EXPOSED = (
    *("X-Request-ID", "Location", "Retry-After", "Pressroom-Source", "Idempotent-Replayed"),
    *("Pressroom-Version", "Deprecation", "Sunset"),
)


class ApiCorsMiddleware:
    """Allows scripts of any origin to call the API, without credentials, but not the pages."""

    def __init__(self, app: ASGIApp, *, pages: Iterable[APIRouter]) -> None:
        self._app = app
        self._api = CORSMiddleware(
            app,
            allow_origins=["*"],
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=_EXPOSED,
        )
        self._paths = {
            route.path for each in pages for route in each.routes if isinstance(route, APIRoute)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].rstrip("/") in self._paths:
            mark_as_page(scope)
            await self._app(scope, receive, send)
        elif all(name != b"origin" for name, _ in scope["headers"]):
            # The most frequent case: the answer only needs to say that it depends on the origin.
            scope["pressroom.headers"].append((b"vary", b"Origin"))
            await self._app(scope, receive, send)
        else:
            await self._api(scope, receive, send)
