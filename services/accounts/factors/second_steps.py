"""The second step of a login: what a person shows once their password was right.

A login that has got so far has no session. The browser holds a proof of its first step in a cookie,
which is worth nothing without the browser's other cookie, after the password changed, or twice.
"""

from dataclasses import dataclass

from core import ids
from core.errors.access import AUTH_SECOND_FACTOR
from core.errors.people import SECOND_FACTOR_WRONG
from core.keyring import Keyring
from models import User
from services.access import sessions
from services.accounts import accounts, logins
from services.accounts.factors import own_factors, passkeys, totp
from services.accounts.factors.own_factors import FactorChange
from services.accounts.logins import Attempt, Browser
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class ShownFactor:
    """The entry of a form: a code of the app or a recovery code, or a passkey's answer."""

    # The browser's; the passkey's challenge is about it.
    form_cookie: str
    code: str = ""
    passkey: str = ""


def require(uow: UnitOfWork, person: User, shown: ShownFactor) -> None:
    """Take what a person shows, if they have a second factor.

    An attempt with a code must have been counted before (``logins.begin_code``). Raises
    ``auth.second_factor`` for nothing shown, ``second_factor.wrong`` and ``passkey.invalid``.
    """
    if not sessions.is_asked(uow, person.id):
        return
    if shown.passkey:
        cookie = shown.form_cookie
        answer = shown.passkey
        passkeys.take(uow, form_cookie=cookie, answer=answer, user_id=person.id)
        return
    code = "".join(shown.code.split())
    if not code:
        raise AUTH_SECOND_FACTOR()
    if totp.is_code(code):
        is_right = totp.take(uow, uow.key_wrapper, person.id, code)
    elif is_right := own_factors.take_code(uow, person.id, code):
        own_factors.tell(uow, person.id, FactorChange.CODE_USED)
    if not is_right:
        raise SECOND_FACTOR_WRONG()


def begin(keyring: Keyring, person: User, form_cookie: str) -> str:
    """The value of the cookie of a person whose password was right, in this browser."""
    return f"{person.id}.{passkeys.make(keyring, _about(person, form_cookie))}"


def read(uow: UnitOfWork, first_step: str, form_cookie: str) -> User:
    """The person whose second step such a cookie waits for; raises ``auth.second_factor``."""
    user_id, _, proof = first_step.partition(".")
    person = None
    if user_id.isascii() and user_id.isdigit() and len(user_id) <= len(str(ids.MAX_ID)):
        person = uow.session.get(User, min(int(user_id), ids.MAX_ID))
    if (
        person is None
        or person.password_hash is None
        or not passkeys.is_valid(uow.settings.keyring, _about(person, form_cookie), proof)
        or passkeys.is_spent(uow, proof)
        # A person whose factors were removed since is asked for the password once more.
        or not sessions.is_asked(uow, person.id)
    ):
        raise AUTH_SECOND_FACTOR()
    return person


def finish(
    uow: UnitOfWork,
    first_step: str,
    shown: ShownFactor,
    *,
    attempt: Attempt | None,
    browser: Browser,
) -> User:
    """The person who logs in by this second step; raises what ``read`` and ``require`` raise."""
    person = read(uow, first_step, shown.form_cookie)
    require(uow, person, shown)
    if not passkeys.spend(uow, first_step.partition(".")[2]):
        raise AUTH_SECOND_FACTOR()
    if attempt is not None:
        logins.clear(uow, attempt)
    logins.tell_of_browser(uow, person, browser)
    return person


def by_passkey(uow: UnitOfWork, *, form_cookie: str, answer: str, browser: Browser) -> User:
    """The person who logs in by a passkey alone; raises ``passkey.invalid``."""
    passkey = passkeys.take(uow, form_cookie=form_cookie, answer=answer, user_id=None)
    person = accounts.get(uow, passkey.user_id)
    logins.tell_of_browser(uow, person, browser)
    return person


def _about(person: User, form_cookie: str) -> str:
    # A new password ends what was begun with the old one; an erased person has none.
    return f"login\n{person.id}\n{person.password_hash}\n{form_cookie}"
