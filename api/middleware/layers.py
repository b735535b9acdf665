from collections.abc import Sequence

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send


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
