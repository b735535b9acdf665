"""Defines the cookies that Pressroom sets in browsers."""

from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address

from fastapi import Request, Response

from core.settings import Settings
from services.access.sessions import SESSION_LIFETIME
from services.accounts.factors.proofs import PROOF_LIFETIME
from services.accounts.mailed_tokens import TOKEN_LIFETIMES, Purpose


@dataclass(frozen=True)
class Cookie:
    """If ``seconds`` is ``None``, the cookie expires when the browser closes."""

    name: str
    seconds: float | None


SESSION_COOKIE = Cookie("pressroom_session", SESSION_LIFETIME.total_seconds())
# The form cookie ensures that only the browser that loaded a form can submit it.
FORM_COOKIE = Cookie("pressroom_form", None)
# The known-browser cookie proves that someone has logged in with the browser before
# (``services.accounts.logins``).
KNOWN_BROWSER_COOKIE = Cookie("pressroom_known", 365 * 24 * 3600)
# Until the second factor arrives, the first-step cookie proves that the password was correct
# (``services.accounts.factors.second_steps``).
FIRST_STEP_COOKIE = Cookie("pressroom_first_step", PROOF_LIFETIME.total_seconds())
# The visit cookie identifies a reader on the preferences page, because readers don't log in.
VISIT_COOKIE = Cookie("pressroom_visit", TOKEN_LIFETIMES[Purpose.VISIT_PREFERENCES].total_seconds())
# The sign-up cookie carries the reader's encrypted answers to the page that follows a sign-up form
# (``api.sign_up.sealed_answers``).
SIGN_UP_COOKIE_LIFETIME = timedelta(minutes=10)
SIGN_UP_COOKIE = Cookie("pressroom_sign_up", SIGN_UP_COOKIE_LIFETIME.total_seconds())
# The interrupted-form cookie carries the encrypted fields of a form that needs a recent login. The
# page after the login shows them (``api.auth.interrupted_forms``).
INTERRUPTED_FORM_LIFETIME = timedelta(minutes=15)
INTERRUPTED_FORM_COOKIE = Cookie(
    "pressroom_interrupted_form", INTERRUPTED_FORM_LIFETIME.total_seconds()
)
# The notice cookie contains a message for the next page of the console (``api.console.requests``).
NOTICE_COOKIE = Cookie("pressroom_notice", 60)
# The cookies that readers' pages accept if they are on a separate host.
READER_COOKIES = (VISIT_COOKIE, FORM_COOKIE, SIGN_UP_COOKIE)


@dataclass(frozen=True)
class Cookies:
    """Sets, reads and deletes Pressroom's cookies.

    The prefix ``__Host-`` prevents other hosts in Pressroom's domain from setting Pressroom's
    cookies.
    """

    prefix: str
    secure: bool

    def name_of(self, cookie: Cookie) -> str:
        return self.prefix + cookie.name

    def read(self, request: Request, cookie: Cookie) -> str | None:
        return request.cookies.get(self.name_of(cookie))

    def set(self, reply: Response, cookie: Cookie, value: str) -> None:
        self._set(reply, cookie, value, cookie.seconds)

    def delete(self, reply: Response, cookie: Cookie) -> None:
        self._set(reply, cookie, "", 0)

    def _set(self, reply: Response, cookie: Cookie, value: str, seconds: float | None) -> None:
        reply.set_cookie(
            self.name_of(cookie),
            value,
            max_age=None if seconds is None else int(seconds),
            secure=self.secure,
            httponly=True,
            samesite="lax",
        )


def configure_cookies(settings: Settings) -> Cookies:
    host = (settings.public_url.host or "").strip("[]")
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost" or host.endswith(".localhost")
    # Browsers accept ``Secure`` cookies only over TLS, but a trial on a developer's machine has no
    # TLS.
    secure = not (settings.public_url.scheme == "http" and is_loopback)
    return Cookies("__Host-" if secure else "", secure)
