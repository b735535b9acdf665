"""The cookies that Pressroom sets in browsers."""

from dataclasses import dataclass
from ipaddress import ip_address

from fastapi import Request, Response

from core.settings import Settings
from services.access.sessions import SESSION_LIFETIME
from services.accounts.factors.proofs import PROOF_LIFETIME
from services.accounts.mailed_tokens import TOKEN_LIFETIMES, Purpose


@dataclass(frozen=True)
class Cookie:
    """A cookie of Pressroom. A cookie without ``seconds`` lasts until the browser is closed."""

    name: str
    seconds: float | None


SESSION = Cookie("pressroom_session", SESSION_LIFETIME.total_seconds())
# Ties forms to a browser without a session.
FORM = Cookie("pressroom_form", None)
# This cookie proves that someone has logged in with this browser before
# (``services.accounts.logins``).
KNOWN = Cookie("pressroom_known", 365 * 24 * 3600)
# This cookie proves that the password was correct while a login waits for the second factor
# (``services.accounts.factors.second_steps``).
FIRST_STEP = Cookie("pressroom_first_step", PROOF_LIFETIME.total_seconds())
# A reader's visit to their preferences (``services.subscriptions.preferences``).
VISIT = Cookie("pressroom_visit", TOKEN_LIFETIMES[Purpose.VISIT_PREFERENCES].total_seconds())
# This cookie holds the notice that the next page of the console shows (``api.console.requests``).
NOTICE = Cookie("pressroom_notice", 60)
# The cookies that readers' pages use if readers' pages have a host of their own.
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
