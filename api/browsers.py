"""Browsers: the cookies that they keep for us, and what they tell of themselves."""

from dataclasses import dataclass
from ipaddress import ip_address

from fastapi import Request, Response

from core.settings import Settings, origins
from services.access.sessions import SESSION_LIFETIME
from services.accounts.factors.passkeys import PROOF_LIFETIME
from services.accounts.mailed_tokens import TOKEN_LIFETIMES, Purpose


@dataclass(frozen=True)
class Cookie:
    """A cookie of ours; without ``seconds`` it lasts as long as the browser is open."""

    name: str
    seconds: float | None


SESSION = Cookie("pressroom_session", SESSION_LIFETIME.total_seconds())
# Ties forms to a browser without a session.
FORM = Cookie("pressroom_form", None)
# Proves that a person logged in with this browser before (``accounts.logins``).
KNOWN = Cookie("pressroom_known", 365 * 24 * 3600)
# Proves that the password was right, where the login needs a second factor too
# (``services.accounts.factors.second_steps``).
FIRST_STEP = Cookie("pressroom_first_step", PROOF_LIFETIME.total_seconds())
# A reader's visit to their preferences (``services.subscriptions.preferences``).
VISIT = Cookie("pressroom_visit", TOKEN_LIFETIMES[Purpose.VISIT_PREFERENCES].total_seconds())
# Tells the next page of the console what was done (``api.console.requests``).
NOTICE = Cookie("pressroom_notice", 60)
# The cookies of readers' pages where these have a host of their own.
OF_READERS = (VISIT, FORM)


@dataclass(frozen=True)
class Cookies:
    """Sets, reads and deletes cookies.

    The prefix ``__Host-`` keeps other hosts of our domain from setting them.
    """

    prefix: str
    secure: bool

    def name(self, cookie: Cookie) -> str:
        return self.prefix + cookie.name

    def read(self, request: Request, cookie: Cookie) -> str | None:
        return request.cookies.get(self.name(cookie))

    def keep(self, reply: Response, cookie: Cookie, value: str) -> None:
        self._set(reply, cookie, value, cookie.seconds)

    def drop(self, reply: Response, cookie: Cookie) -> None:
        self._set(reply, cookie, "", 0)

    def _set(self, reply: Response, cookie: Cookie, value: str, seconds: float | None) -> None:
        reply.set_cookie(
            self.name(cookie),
            value,
            max_age=None if seconds is None else int(seconds),
            secure=self.secure,
            httponly=True,
            samesite="lax",
        )


def cookies_of(settings: Settings) -> Cookies:
    host = (settings.public_url.host or "").strip("[]")
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost" or host.endswith(".localhost")
    # Browsers accept Secure cookies over TLS only, and a trial on one's own machine has no TLS.
    secure = not (settings.public_url.scheme == "http" and is_loopback)
    return Cookies("__Host-" if secure else "", secure)


def client_address(request: Request) -> str | None:
    """Return the IP address of the caller."""
    # Behind a trusted proxy, the server has put the proxy's client here already.
    return request.client.host if request.client else None


def referring_page(request: Request) -> str | None:
    """Return the page from which the request came, without its query, if the browser tells."""
    return origins.page_of(request.headers.get("referer", ""))


def browser_name(user_agent: str | None) -> str | None:
    """Return a name by which a person recognises their browser, such as "Firefox on Linux"."""
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
