"""Handles the header ``Pressroom-Version``, with which clients select a version of the API."""

from starlette.types import ASGIApp, Receive, Scope, Send

from api.errors import problem_response
from api.html.problems import is_for_browser
from core.errors.requests import VERSION_UNKNOWN

VERSION_HEADER = "Pressroom-Version"
# The supported API versions, newest first. An API version is the date of a breaking change
# (docs/conventions.md). A client that selects no API version gets the oldest one, so that new
# versions don't break it.
VERSIONS = ("2026-11-21",)

_HEADER_NAME = VERSION_HEADER.lower().encode()
_OLDEST_VERSION = VERSIONS[-1].encode()
_KNOWN_VERSIONS = {version.encode() for version in VERSIONS}


class VersionMiddleware:
    """Adds the API version to each response, and rejects requests for an unknown version.

    HTML pages have no ``Pressroom-Version`` header.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if is_for_browser(scope):
            await self._app(scope, receive, send)
            return
        requested = [value for name, value in scope["headers"] if name == _HEADER_NAME]
        is_known = _KNOWN_VERSIONS.issuperset(requested) and len(set(requested)) <= 1
        version = requested[0] if requested and is_known else _OLDEST_VERSION
        scope["pressroom.headers"].append((_HEADER_NAME, version))
        if is_known:
            await self._app(scope, receive, send)
        else:
            error = VERSION_UNKNOWN(known=", ".join(VERSIONS))
            await problem_response(error)(scope, receive, send)
