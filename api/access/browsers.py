"""Browsers: their cookies, and the check that a write comes from one of our own pages.

A browser sends its cookies with every request to us, also when another site's page makes it. So a
write by cookie also needs our own origin, or a token that other sites' pages can't read.
"""

import re
import secrets

from fastapi import Request

from api.state import State
from core.refusals.access import AUTH_CSRF
from core.settings import origins
from services.access import sessions
from services.people.unasked_mails import mail_bounds

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF_HEADER = "X-CSRF-Token"
CSRF_FIELD = "csrf_token"
_FORM_VALUE = re.compile(r"[A-Za-z0-9_-]{43}\Z")


def session_cookie(request: Request, state: State) -> str | None:
    return request.cookies.get(state.cookies.session) or None


def require_csrf(request: Request, state: State, cookie: str | None, token: object = None) -> None:
    """Refuse a write that another site's page may have sent; raises ``auth.csrf``.

    The CSRF token comes in the header, or as ``token`` from a form's field.
    """
    if request.headers.get("origin") == state.resources.settings.public_origin:
        return
    for sent in (token, request.headers.get(CSRF_HEADER)):
        if (
            cookie
            and isinstance(sent, str)
            and sessions.is_csrf_token(state.resources.keyring, cookie, sent)
        ):
            return
    raise AUTH_CSRF(header=CSRF_HEADER)


def form_cookie_value(request: Request, state: State) -> str:
    """The value that ties a form to this browser: its form cookie's, or a new one."""
    sent = request.cookies.get(state.cookies.form, "")
    return sent if _FORM_VALUE.match(sent) else secrets.token_urlsafe(32)


# Printable ASCII without the backslash, which browsers read as a slash. A second slash at the start
# would make a host of the rest.
_OWN_PATH = re.compile(r"/(?!/)[!-\[\]-~]{0,8000}\Z")


def local_path(sent: object) -> str | None:
    """The path to open after a login, or ``None`` when it could lead away from our own host."""
    return sent if isinstance(sent, str) and _OWN_PATH.match(sent) else None


def client_address(request: Request) -> str | None:
    """The IP address of the caller."""
    # Behind a trusted proxy, the server has put the proxy's client here already.
    return request.client.host if request.client else None


def referring_page(request: Request) -> str | None:
    """The page from which the request came, without its query, if the browser tells."""
    return origins.page_of(request.headers.get("referer", ""))


def mail_source(request: Request, state: State) -> bytes | None:
    """What the mails are counted under that the caller's network has sent to other people."""
    return mail_bounds.source_digest(state.resources.keyring, client_address(request))


def browser_name(user_agent: str | None) -> str | None:
    """A name by which a person recognises their browser, such as "Firefox on Linux"."""
    text = (user_agent or "")[:1000]
    browser = next((name for mark, name in _BROWSERS if mark in text), None)
    system = next((name for mark, name in _SYSTEMS if mark in text), None)
    return " on ".join(filter(None, (browser, system))) or None


# The first match counts, since most browsers also name others in their ``User-Agent``.
_BROWSERS = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)
