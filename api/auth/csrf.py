"""Protects forms against cross-site request forgery (CSRF).

A browser sends Pressroom's cookies even if a page of another site makes the request. A request that
relies on a cookie may change data only if it comes from Pressroom's origin or contains a CSRF
token. Pages of other sites can't read a CSRF token.
"""

import re
import secrets

from fastapi import Request

from api.bodies.page_forms import FormFields
from api.cookies import FORM_COOKIE
from api.state import State
from core.errors import access
from services.access import sessions

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF_HEADER = "X-CSRF-Token"
CSRF_FIELD = "csrf_token"
_FORM_COOKIE_VALUE = re.compile(r"[A-Za-z0-9_-]{43}\Z")


def require_csrf(request: Request, state: State, cookie: str | None, token: object = None) -> None:
    """Raise ``auth.csrf`` if a page of another site may have sent the request.

    Args:
        cookie: the value of the cookie from which the CSRF token was derived.
        token: the CSRF token from the form, or ``None`` to accept only a token in the header.
    """
    if request.headers.get("origin") == state.resources.settings.public_origin:
        return
    for candidate in (token, request.headers.get(CSRF_HEADER)):
        if (
            cookie
            and isinstance(candidate, str)
            and sessions.is_valid_csrf_token(state.resources.keyring, cookie, candidate)
        ):
            return
    raise access.AUTH_CSRF(header=CSRF_HEADER)


def require_form_csrf(request: Request, state: State, form: FormFields) -> None:
    cookie = state.cookies.read(request, FORM_COOKIE)
    require_csrf(request, state, cookie, form.get(CSRF_FIELD))


def obtain_form_cookie(request: Request, state: State) -> str:
    """Return the browser's form cookie, or a new value if the form cookie is missing or invalid.

    A form's CSRF token is derived from the form cookie, so other browsers can't submit the form.
    """
    value = state.cookies.read(request, FORM_COOKIE) or ""
    return value if _FORM_COOKIE_VALUE.match(value) else secrets.token_urlsafe(32)
