from starlette.types import ASGIApp, Receive, Scope, Send


class PathMiddleware:
    """A trailing slash is accepted without a redirect, and HEAD works where GET does.

    The server drops the body of an answer to HEAD; a handler that can save itself the work of
    making one finds ``scope["pressroom.head"]``.
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
            # Measures, taken further out, are by route.
            scope["route"] = inner.get("route")
