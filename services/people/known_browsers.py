"""Browsers in which a person logged in before, and which show it by a cookie."""

import secrets
from datetime import datetime

from core import clock
from core.keyring import Keyring
from models import User

# Of the signer, which logins share.
PURPOSE = "login"


def known_browser_token(keyring: Keyring, person: User) -> str:
    """A token for the browser's cookie: it shows that this person logged in there before.

    It ends when the person takes their account back, since the browser may be an intruder's.
    """
    nonce = secrets.token_urlsafe(16)
    message = _message(nonce, person.email, person.recovered_at)
    return f"{nonce}.{keyring.signer(PURPOSE).sign(message)}"


def known_nonce(
    keyring: Keyring, email: str, recovered_at: datetime | None, known: str | None
) -> str | None:
    """The nonce of a browser in which the person logged in before; ``known``: its token."""
    nonce, _, signature = (known or "").partition(".")
    message = _message(nonce, email, recovered_at)
    is_known = keyring.signer(PURPOSE).verify(message, signature)
    return nonce if nonce and is_known else None


def _message(nonce: str, email: str, recovered_at: datetime | None) -> bytes:
    since = "" if recovered_at is None else f"\n{clock.iso(recovered_at)}"
    return f"known\n{nonce}\n{email}{since}".encode("utf-8", "surrogatepass")
