from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.health.drain import Drain
from core.settings import Settings

_Header = tuple[bytes, bytes]

_ALWAYS: tuple[_Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
_PAGE: tuple[_Header, ...] = (
    # No page of ours uses any of these; a script that came into one must not either.
    (
        b"permissions-policy",
        b"camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
    # A page that opens ours in a window gets no hold on that window.
    (b"cross-origin-opener-policy", b"same-origin"),
)
# Only pages may load, run or frame anything: other answers get the strictest policy.
_NO_PAGE: _Header = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
# For a caller's own data. Shared caches respect Authorization, but don't know which other headers
# carry credentials.
_PRIVATE: _Header = (b"cache-control", b"no-store")
_HSTS = b"strict-transport-security"
# The caller's next call goes to a process that stays.
_CLOSE: _Header = (b"connection", b"close")


class HeadersMiddleware:
    """Adds the headers of every answer for browsers and caches, unless the answer has its own, and
    the headers that inner layers put into ``scope["pressroom.headers"]``. While the process drains,
    each answer ends its connection. The outermost layer that answers."""

    def __init__(self, app: ASGIApp, *, settings: Settings, drain: Drain) -> None:
        self._app = app
        self._drain = drain
        # A browser that has reached us over TLS must use TLS from then on (HSTS).
        hsts = b"max-age=31536000" + (b"; includeSubDomains" if settings.hsts_subdomains else b"")
        is_https = settings.public_url.scheme == "https"
        self._always = _ALWAYS + (((_HSTS, hsts),) if is_https else ())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        added: list[_Header] = []
        scope["pressroom.headers"] = added

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = dict(message["headers"])
                kind = known.get(b"content-type", b"")
                is_page = kind.startswith(b"text/html")
                wanted = [*self._always, *(_PAGE if is_page else (_NO_PAGE,))]
                if kind.endswith(b"json"):
                    wanted.append(_PRIVATE)
                missing = [header for header in wanted if header[0] not in known]
                message["headers"] = [*message["headers"], *missing, *added]
                if self._drain.has_begun:
                    message["headers"].append(_CLOSE)
            await send(message)

        await self._app(scope, receive, send_with_headers)
