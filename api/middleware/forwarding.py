from typing import cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from api.health.callers_view import PEER
from core.logging import get_logger
from core.settings import Settings

log = get_logger(__name__)


class ForwardingMiddleware:
    """Takes the caller's IP address and scheme from a trusted proxy's headers. The outermost layer.

    A proxy that the settings don't name makes all of its callers one, so the log says once that
    there may be such a proxy. Any caller can send such a header, so the log says it at most once.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        networks = list(settings.forwarding_networks())
        taking = ProxyHeadersMiddleware(app, trusted_hosts=networks)  # type: ignore[arg-type]
        self._trusted = taking.trusted_hosts
        # uvicorn and Starlette have different types for the same protocol.
        self._app = cast("ASGIApp", taking)
        self._has_told = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # As the connection has it. What comes next puts the forwarded address in its place.
        scope[PEER] = scope.get("client")
        if not self._has_told:
            self._tell(scope)
        await self._app(scope, receive, send)

    def _tell(self, scope: Scope) -> None:
        address = scope["client"][0] if scope.get("client") else ""
        is_forwarded = any(name == b"x-forwarded-for" for name, _ in scope["headers"])
        if is_forwarded and address not in self._trusted:
            self._has_told = True
            log.warning("proxy.not_trusted", address=address)
