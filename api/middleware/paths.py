from starlette.types import ASGIApp, Receive, Scope, Send


class PathMiddleware:
    """Accepts a trailing slash without a redirect, and HEAD on every route that has GET.

    The server drops the body of an answer to HEAD. A handler whose body is expensive looks for
    ``scope["pressroom.head"]`` and leaves it out.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        inner = {**scope, "path": scope["path"].rstrip("/") or "/"}
        if scope["method"] == "HEAD":
            inner |= {"method": "GET", "pressroom.head": True}
        try:
            await self._app(inner, receive, send)
        finally:
            # The metrics middleware is outside of this one and labels by route.
            scope["route"] = inner.get("route")
