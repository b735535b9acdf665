"""Verifies six-digit codes from authenticator apps, which change every 30 seconds (RFC 6238).

The secrets of authenticator apps are stored encrypted, so nobody can generate codes from a copy of
the database.
"""

import base64
import re
import secrets

import pyotp
from pyotp.exceptions import OTPVerificationError
from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert

from core import clock
from core.errors.people import SECOND_FACTOR_WRONG
from core.ids import PersonId
from core.keyring import Keyring
from models import TotpSecret
from storage.encryption import KeyWrapper, WrappedKey
from storage.unit_of_work import UnitOfWork

# RFC 4226 recommends secrets of 160 bits. A secret of 160 bits has 32 letters and digits, which a
# person can still type.
_SECRET_BYTES = 20
# How far the clock of a person's device may differ from the server's, in steps of 30 seconds.
_CLOCK_TOLERANCE_STEPS = 1
_ISSUER = "Pressroom"
_PURPOSE = "totp-offer"
_CODE = re.compile(r"[0-9]{6}", re.ASCII)
_SECRET = re.compile(r"[A-Z2-7]{32}", re.ASCII)


def create_secret() -> str:
    return base64.b32encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def sign_offer(keyring: Keyring, session: str, secret: str) -> str:
    """Sign the new secret of an authenticator app, so that the setup form can't be forged.

    The setup form sends the secret back. The secret is stored only after the person has entered a
    valid code.
    """
    return keyring.signer(_PURPOSE).sign(_offer(session, secret))


def is_offered(keyring: Keyring, session: str, secret: str, signature: str) -> bool:
    is_signed = keyring.signer(_PURPOSE).verify(_offer(session, secret), signature)
    return is_signed and _SECRET.fullmatch(secret) is not None


def build_uri(secret: str, email: str) -> str:
    return pyotp.TOTP(secret).provisioning_uri(name=email, issuer_name=_ISSUER)


def is_code(text: str) -> bool:
    return _CODE.fullmatch(text) is not None


def add_secret(
    uow: UnitOfWork, wrapper: KeyWrapper, person_id: PersonId, secret: str, code: str
) -> None:
    """Store the secret of an authenticator app, in place of any earlier secret.

    Raises ``second_factor.wrong`` if the person's code doesn't match the secret.
    """
    step = _matching_step(secret, code)
    if step is None:
        raise SECOND_FACTOR_WRONG()
    wrapped = wrapper.wrap(base64.b32decode(secret), _context(person_id))
    values = {
        "wrapped_secret": wrapped.data,
        "wrapped_by": wrapped.wrapped_by,
        "last_step": step,
        "created_at": clock.now(),
    }
    insertion = insert(TotpSecret).values(user_id=person_id, **values)
    upsert = insertion.on_conflict_do_update(index_elements=[TotpSecret.user_id], set_=values)
    uow.session.execute(upsert)


def accept_code(uow: UnitOfWork, wrapper: KeyWrapper, person_id: PersonId, code: str) -> bool:
    """Return whether a code is valid, and mark it as used.

    A code is accepted only if the person has used neither this code nor a newer one. If two
    simultaneous requests contain the same code, only one succeeds.
    """
    secret_row = uow.session.get(TotpSecret, person_id)
    if secret_row is None:
        return False
    wrapped = WrappedKey(secret_row.wrapped_by, secret_row.wrapped_secret)
    secret = wrapper.unwrap(wrapped, _context(person_id))
    step = _matching_step(base64.b32encode(secret).decode(), code)
    if step is None:
        return False
    has_older_step = (TotpSecret.user_id == person_id, TotpSecret.last_step < step)
    statement = update(TotpSecret).where(*has_older_step).values(last_step=step)
    statement = statement.returning(TotpSecret.user_id)
    options = {"synchronize_session": False}
    return uow.session.scalar(statement, execution_options=options) is not None


def find_secret(uow: UnitOfWork, person_id: PersonId) -> TotpSecret | None:
    return uow.session.get(TotpSecret, person_id)


def remove_secret(uow: UnitOfWork, person_id: PersonId) -> bool:
    statement = delete(TotpSecret).where(TotpSecret.user_id == person_id)
    return uow.session.scalar(statement.returning(TotpSecret.user_id)) is not None


def rewrap_secrets(uow: UnitOfWork, wrapper: KeyWrapper) -> int:
    stale = select(TotpSecret).where(TotpSecret.wrapped_by != wrapper.current)
    rows = uow.session.scalars(stale.with_for_update()).all()
    for row in rows:
        wrapped = WrappedKey(row.wrapped_by, row.wrapped_secret)
        rewrapped = wrapper.rewrap(wrapped, _context(row.user_id))
        row.wrapped_secret = rewrapped.data
        row.wrapped_by = rewrapped.wrapped_by
    return len(rows)


def count_uses(uow: UnitOfWork) -> dict[str, int]:
    query = select(TotpSecret.wrapped_by, func.count()).group_by(TotpSecret.wrapped_by)
    return dict(uow.session.execute(query).all())


def _matching_step(secret: str, code: str) -> int | None:
    """Return the number of a code's 30-second step, or ``None`` for a wrong or expired code."""
    if not is_code(code):
        return None
    try:
        return pyotp.TOTP(secret).verify_and_get_timecode(
            code, for_time=clock.now(), valid_window=_CLOCK_TOLERANCE_STEPS
        )
    except OTPVerificationError:
        return None


def _context(person_id: PersonId) -> str:
    return f"totp:{person_id}"


def _offer(session: str, secret: str) -> bytes:
    return f"{session}\n{secret}".encode("utf-8", "surrogatepass")
