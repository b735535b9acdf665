from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import quote

from fastapi.responses import Response

from core.settings import Settings
from services.access import sessions
from services.people import mailed_tokens
from services.people.factors import proofs

_KNOWN_SECONDS = 365 * 24 * 3600
_NOTICE_SECONDS = 60


@dataclass(frozen=True)
class Cookies:
    """Our cookies. The prefix ``__Host-`` keeps other hosts of our domain from setting them."""

    prefix: str
    secure: bool

    @property
    def session(self) -> str:
        return f"{self.prefix}pressroom_session"

    @property
    def form(self) -> str:
        """Ties forms to a browser without a session."""
        return f"{self.prefix}pressroom_form"

    @property
    def known(self) -> str:
        """Proves that a person logged in with this browser before (``services.people.logins``)."""
        return f"{self.prefix}pressroom_known"

    @property
    def first_step(self) -> str:
        """Proves that the password was right, where the login needs a second factor too
        (``services.people.factors.second_steps``)."""
        return f"{self.prefix}pressroom_first_step"

    @property
    def visit(self) -> str:
        """A reader's visit to their preferences (``preference_visits``)."""
        return f"{self.prefix}pressroom_visit"

    def keep_visit(self, reply: Response, value: str) -> None:
        lifetime = mailed_tokens.TOKEN_LIFETIMES[mailed_tokens.Purpose.VISIT_PREFERENCES]
        self._set(reply, self.visit, value, int(lifetime.total_seconds()))

    def drop_visit(self, reply: Response) -> None:
        self._set(reply, self.visit, "", 0)

    @property
    def notice(self) -> str:
        """What the next page says of what was done (``api.console.visits``)."""
        return f"{self.prefix}pressroom_notice"

    def keep_session(self, reply: Response, value: str) -> None:
        self._set(reply, self.session, value, int(sessions.SESSION_LIFETIME.total_seconds()))

    def drop_session(self, reply: Response) -> None:
        self._set(reply, self.session, "", 0)

    def keep_form(self, reply: Response, value: str) -> None:
        self._set(reply, self.form, value, None)

    def keep_first_step(self, reply: Response, value: str) -> None:
        self._set(reply, self.first_step, value, int(proofs.PROOF_LIFETIME.total_seconds()))

    def drop_first_step(self, reply: Response) -> None:
        self._set(reply, self.first_step, "", 0)

    def keep_known(self, reply: Response, value: str) -> None:
        self._set(reply, self.known, value, _KNOWN_SECONDS)

    def keep_notice(self, reply: Response, text: str) -> None:
        # A cookie holds no spaces and no letters beyond ASCII.
        self._set(reply, self.notice, quote(text), _NOTICE_SECONDS)

    def drop_notice(self, reply: Response) -> None:
        self._set(reply, self.notice, "", 0)

    def _set(self, reply: Response, name: str, value: str, seconds: int | None) -> None:
        reply.set_cookie(
            name, value, max_age=seconds, secure=self.secure, httponly=True, samesite="lax"
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
