from starlette.types import ASGIApp, Receive, Scope, Send

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
    """Whether the request is a HEAD, which handlers see as a GET."""
    return _HEAD in scope
