"""Runs the second step of a login, which checks the person's second factor.

After the first step, the person has no session yet, only a cookie that proves the first step. This
cookie works only once, only in one browser, and only until the password changes.
"""

from dataclasses import dataclass

from core import ids
from core.errors.access import AUTH_SECOND_FACTOR
from core.errors.people import SECOND_FACTOR_WRONG
from core.keyring import Keyring
from models import User
from services.access import sessions
from services.accounts import accounts, logins
from services.accounts.factors import own_factors, passkeys, proofs, recovery_codes, totp
from services.accounts.factors.own_factors import FactorChange
from services.accounts.logins import Attempt, Browser
from storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class SubmittedFactor:
    """The second factor that a person submitted in a form, which may be empty.

    A passkey challenge is bound to the browser's ``form_cookie``. ``code`` can be a recovery code.
    """

    form_cookie: str
    code: str = ""
    passkey: str = ""


def require_second_factor(uow: UnitOfWork, person: User, factor: SubmittedFactor) -> None:
    """Verify the second factor that a person submitted, if the person has one.

    If the person submitted a code, call ``logins.begin_code_attempt`` first. Raises
    ``auth.second_factor`` if the person submitted no second factor.
    """
    if not sessions.has_second_factor(uow, person.id):
        return
    if factor.passkey:
        passkeys.verify_passkey(
            uow, form_cookie=factor.form_cookie, answer=factor.passkey, person_id=person.id
        )
        return
    code = "".join(factor.code.split())
    if not code:
        raise AUTH_SECOND_FACTOR()
    if totp.is_code(code):
        is_right = totp.accept_code(uow, uow.key_wrapper, person.id, code)
    elif is_right := recovery_codes.use_code(uow, person.id, code):
        own_factors.report_change(uow, person.id, FactorChange.CODE_USED)
    if not is_right:
        raise SECOND_FACTOR_WRONG()


def create_first_step(keyring: Keyring, person: User, form_cookie: str) -> str:
    return f"{person.id}.{proofs.create_proof(keyring, _proof_subject(person, form_cookie))}"


def read_first_step(uow: UnitOfWork, first_step: str, form_cookie: str) -> User:
    """Return the person who passed the first login step, or raise ``auth.second_factor``."""
    user_id, _, proof = first_step.partition(".")
    person = None
    if user_id.isascii() and user_id.isdigit() and len(user_id) <= len(str(ids.MAX_ID)):
        person = uow.session.get(User, min(int(user_id), ids.MAX_ID))
    if (
        person is None
        or person.password_hash is None
        or not proofs.is_valid_proof(
            uow.settings.keyring, _proof_subject(person, form_cookie), proof
        )
        or proofs.is_spent_proof(uow, proof)
        # If all second factors were removed after the first step, the person must log in again.
        or not sessions.has_second_factor(uow, person.id)
    ):
        raise AUTH_SECOND_FACTOR()
    return person


def complete_second_step(
    uow: UnitOfWork,
    first_step: str,
    factor: SubmittedFactor,
    *,
    attempt: Attempt | None,
    browser: Browser,
) -> User:
    person = read_first_step(uow, first_step, factor.form_cookie)
    require_second_factor(uow, person, factor)
    if not proofs.spend_proof(uow, first_step.partition(".")[2]):
        raise AUTH_SECOND_FACTOR()
    if attempt is not None:
        logins.clear_attempt(uow, attempt)
    logins.notify_of_new_browser(uow, person, browser)
    return person


def log_in_by_passkey(uow: UnitOfWork, *, form_cookie: str, answer: str, browser: Browser) -> User:
    passkey = passkeys.verify_passkey(uow, form_cookie=form_cookie, answer=answer, person_id=None)
    person = accounts.get_user(uow, passkey.user_id)
    logins.notify_of_new_browser(uow, person, browser)
    return person


def _proof_subject(person: User, form_cookie: str) -> str:
    # The proof covers the hash of the password, so changing the password invalidates the proof.
    return f"login\n{person.id}\n{person.password_hash}\n{form_cookie}"
