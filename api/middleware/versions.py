"""The versions of the contract: each is the date of a change that breaks callers.

docs/api.md says what such a change is, and for how long a version lives.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from api.errors import problem_response
from api.pages.problems import is_for_browser
from core.refusals.requests import VERSION_UNKNOWN

VERSION_HEADER = "Pressroom-Version"
# The newest first: callers who ask for none get that one.
VERSIONS = ("2026-11-21",)

_NAME = VERSION_HEADER.lower().encode()
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
        version = asked[0] if asked and is_known else VERSIONS[0].encode()
        scope["pressroom.headers"].append((_NAME, version))
        if is_known:
            await self._app(scope, receive, send)
        else:
            refused = VERSION_UNKNOWN(known=", ".join(VERSIONS))
            await problem_response(refused)(scope, receive, send)
