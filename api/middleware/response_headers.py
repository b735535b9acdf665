"""Adds headers to responses, and a final newline to JSON responses."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.drain import Drain
from core.settings import Settings

_Header = tuple[bytes, bytes]

_COMMON_HEADERS: tuple[_Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
_PAGE_HEADERS: tuple[_Header, ...] = (
    # Forbid the camera, the location and similar features, which only injected scripts would use.
    (
        b"permissions-policy",
        b"camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
    # If another site opens a Pressroom page in a new window, the site can't control this window.
    (b"cross-origin-opener-policy", b"same-origin"),
)
# Responses that aren't HTML pages load and run nothing, so they get the strictest policy.
_STRICT_POLICY: _Header = (
    b"content-security-policy",
    b"default-src 'none'; frame-ancestors 'none'",
)
# JSON responses must not be cached, because they may contain data that only the caller may see.
# Shared caches don't know that the API key header contains credentials, so forbid caching
# explicitly.
_NO_STORE: _Header = (b"cache-control", b"no-store")
_HSTS_NAME = b"strict-transport-security"
# ``Connection: close`` makes the client open its next connection to another process.
_CLOSE_CONNECTION: _Header = (b"connection", b"close")


class HeadersMiddleware:
    """Adds each default header for browsers and caches, unless a response has the header.

    The headers in ``scope["pressroom.headers"]``, which handlers and inner middleware set, are
    added too. During a shutdown, each response asks the client to close the connection. This
    middleware must wrap all middleware that can return a response.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings, drain: Drain) -> None:
        self._app = app
        self._drain = drain
        # The HSTS header makes browsers use TLS for all future requests to the host.
        hsts = b"max-age=31536000" + (b"; includeSubDomains" if settings.hsts_subdomains else b"")
        is_https = settings.public_url.scheme == "https"
        self._common_headers = _COMMON_HEADERS + (((_HSTS_NAME, hsts),) if is_https else ())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        extra_headers: list[_Header] = []
        scope["pressroom.headers"] = extra_headers

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = dict(message["headers"])
                content_type = present.get(b"content-type", b"")
                is_page = content_type.startswith(b"text/html")
                defaults = [
                    *self._common_headers,
                    *(_PAGE_HEADERS if is_page else (_STRICT_POLICY,)),
                ]
                if content_type.endswith(b"json"):
                    defaults.append(_NO_STORE)
                missing = [header for header in defaults if header[0] not in present]
                message["headers"] = [*message["headers"], *missing, *extra_headers]
                if self._drain.has_begun:
                    message["headers"].append(_CLOSE_CONNECTION)
            await send(message)

        await self._app(scope, receive, send_with_headers)


class FinalNewlineMiddleware:
    """Ends each JSON response with a newline, so that a shell shows its prompt on a new line."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_json = False

        async def send_with_newline(message: Message) -> None:
            nonlocal is_json
            if message["type"] == "http.response.start":
                headers = message["headers"]
                is_json = dict(headers).get(b"content-type", b"").endswith(b"json")
                if is_json:
                    message["headers"] = [
                        (name, b"%d" % (int(value) + 1) if name == b"content-length" else value)
                        for name, value in headers
                    ]
            elif is_json and not message.get("more_body", False):
                message["body"] = message.get("body", b"") + b"\n"
            await send(message)

        await self._app(scope, receive, send_with_newline)
