"""Serves readers' pages, which links in mails open, on a separate host."""

import re
from collections.abc import Collection
from urllib.parse import quote

from fastapi import Response
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Receive, Scope, Send

from api.errors import problem_response
from api.html.problems import is_reader_page
from core.errors.requests import ROUTE_NOT_FOUND
from core.settings import Settings
from services.subscriptions.page_urls import UNSUBSCRIBE_PATH

# The path to which sign-up forms on other sites are submitted.
_SUBMISSION_PATH = re.compile(r"/subscriptions/[^/]+")
# The path to which mail clients send one-click unsubscribe requests.
_ONE_CLICK_PATH = re.compile(r"/subscriptions/[^/]+/delete")
# The path of the health check, which proxies and `pressroom doctor` request.
_HEALTH_PATH = "/healthz"
_FORM_TYPES = (b"application/x-www-form-urlencoded", b"multipart/form-data")


class PagesHostMiddleware:
    """Serves readers' pages on a separate host that serves nothing else.

    Readers' pages contain texts that list owners write. On the host of the login page, a malicious
    text could imitate the login and deceive people and password managers.

    ``ApiCorsMiddleware`` marks requests for readers' pages, so it must run first.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings, cookies: Collection[str]) -> None:
        self._app = app
        self._base = settings.pages_base
        self._host = settings.pages_host
        self._cookies = cookies
        self._credentials = {b"authorization", settings.api_key_header.lower().encode()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].rstrip("/")
        is_post = scope["method"] == "POST"
        is_page = is_reader_page(scope)
        is_submission = bool(_SUBMISSION_PATH.fullmatch(path))
        if _header(scope, b"host").lower() == self._host.encode():
            is_reader_post = is_post and (is_submission or _ONE_CLICK_PATH.fullmatch(path))
            if is_page or is_reader_post or path == _HEALTH_PATH:
                await self._app(self._without_credentials(scope), receive, send)
            else:
                await problem_response(ROUTE_NOT_FOUND())(scope, receive, send)
        # Redirect readers' pages and submitted sign-up forms from the main host to the separate
        # host. Don't redirect one-click unsubscribe requests, because RFC 8058 forbids redirects.
        # Mails that were sent before the separate host was introduced contain one-click URLs on the
        # main host.
        elif (is_page and not (is_post and path == UNSUBSCRIBE_PATH)) or (
            is_submission and is_post and _header(scope, b"content-type").startswith(_FORM_TYPES)
        ):
            query = scope["query_string"].decode("latin-1")
            url = self._base + quote(scope["path"]) + (f"?{query}" if query else "")
            redirect = Response(status_code=308, headers={"Location": url})
            await redirect(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _without_credentials(self, scope: Scope) -> Scope:
        """Keep only the cookies for readers' pages."""
        cookies = cookie_parser(_header(scope, b"cookie").decode("latin-1"))
        dropped = {*self._credentials, b"cookie"}
        headers = [header for header in scope["headers"] if header[0] not in dropped]
        cookie_pairs = [f"{name}={cookies[name]}" for name in self._cookies if name in cookies]
        if cookie_pairs:
            headers.append((b"cookie", "; ".join(cookie_pairs).encode("latin-1")))
        return {**scope, "headers": headers}


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")
