from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.settings import Settings

_Header = tuple[bytes, bytes]

_ALWAYS: tuple[_Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
# Only pages may load, run or frame anything: other answers get the strictest policy.
_NO_PAGE: _Header = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
# For a caller's own data. Shared caches respect Authorization, but don't know which other headers
# carry credentials.
_PRIVATE: _Header = (b"cache-control", b"no-store")
_HTTPS_ONLY: _Header = (b"strict-transport-security", b"max-age=31536000")


class HeadersMiddleware:
    """Adds the headers of every answer for browsers and caches, unless the answer has its own, and
    the headers that inner layers put into ``scope["pressroom.headers"]``. The outermost layer that
    answers."""

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        self._app = app
        # A browser that has reached us over TLS must use TLS from then on (HSTS).
        self._always = _ALWAYS + ((_HTTPS_ONLY,) if settings.public_url.scheme == "https" else ())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        added: list[_Header] = []
        scope["pressroom.headers"] = added

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = dict(message["headers"])
                kind = known.get(b"content-type", b"")
                wanted = list(self._always)
                if not kind.startswith(b"text/html"):
                    wanted.append(_NO_PAGE)
                if kind.endswith(b"json"):
                    wanted.append(_PRIVATE)
                missing = [header for header in wanted if header[0] not in known]
                message["headers"] = [*message["headers"], *missing, *added]
            await send(message)

        await self._app(scope, receive, send_with_headers)
