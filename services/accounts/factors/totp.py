"""Codes of an authenticator app (TOTP, RFC 6238): six digits that change each half minute.

The secret is stored encrypted under the encryption keys, so a copy of the database makes no codes.
"""

import base64
import re
import secrets

import pyotp
from pyotp.exceptions import OTPVerificationError
from sqlalchemy import delete, select, update
from sqlalchemy.dialects.postgresql import insert

from core import clock
from core.errors.people import SECOND_FACTOR_WRONG
from core.keyring import Keyring
from models import TotpSecret
from storage.encryption import KeyWrapper, WrappedKey
from storage.unit_of_work import UnitOfWork

# As RFC 4226 recommends: 160 bits, 32 letters and digits for a person who types them.
_SECRET_BYTES = 20
# Steps of half a minute by which the person's clock may differ from ours.
_WINDOW_STEPS = 1
_ISSUER = "Pressroom"
_PURPOSE = "totp-offer"
_CODE = re.compile(r"[0-9]{6}", re.ASCII)
_SECRET = re.compile(r"[A-Z2-7]{32}", re.ASCII)


def new_secret() -> str:
    return base64.b32encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def sign_offer(keyring: Keyring, session: str, secret: str) -> str:
    """A signature that shows, in the form of the set-up page, that this session was offered this
    secret: nothing is stored before a code confirms it."""
    return keyring.signer(_PURPOSE).sign(_offer(session, secret))


def is_offered(keyring: Keyring, session: str, secret: str, signature: str) -> bool:
    is_signed = keyring.signer(_PURPOSE).verify(_offer(session, secret), signature)
    return is_signed and _SECRET.fullmatch(secret) is not None


def uri(secret: str, email: str) -> str:
    """Return what the QR code says to the app."""
    return pyotp.TOTP(secret).provisioning_uri(name=email, issuer_name=_ISSUER)


def is_code(text: str) -> bool:
    return _CODE.fullmatch(text) is not None


def add(uow: UnitOfWork, wrapper: KeyWrapper, user_id: int, secret: str, code: str) -> None:
    """Store a secret in place of the one before if the code fits, or ``second_factor.wrong``."""
    step = _step(secret, code)
    if step is None:
        raise SECOND_FACTOR_WRONG()
    wrapped = wrapper.wrap(base64.b32decode(secret), _context(user_id))
    values = {
        "wrapped_secret": wrapped.data,
        "wrapped_by": wrapped.wrapped_by,
        "last_step": step,
        "created_at": clock.now(),
    }
    stored = insert(TotpSecret).values(user_id=user_id, **values)
    replaced = stored.on_conflict_do_update(index_elements=[TotpSecret.user_id], set_=values)
    uow.session.execute(replaced)


def take(uow: UnitOfWork, wrapper: KeyWrapper, user_id: int, code: str) -> bool:
    """Return whether this is a code of the person's app, and newer than each that was taken before.

    The condition on the newest step decides between two requests at once: one of them gets it.
    """
    secret_row = uow.session.get(TotpSecret, user_id)
    if secret_row is None:
        return False
    wrapped = WrappedKey(secret_row.wrapped_by, secret_row.wrapped_secret)
    secret = wrapper.unwrap(wrapped, _context(user_id))
    step = _step(base64.b32encode(secret).decode(), code)
    if step is None:
        return False
    newer = (TotpSecret.user_id == user_id, TotpSecret.last_step < step)
    statement = (
        update(TotpSecret).where(*newer).values(last_step=step).returning(TotpSecret.user_id)
    )
    options = {"synchronize_session": False}
    return uow.session.scalar(statement, execution_options=options) is not None


def of(uow: UnitOfWork, user_id: int) -> TotpSecret | None:
    return uow.session.get(TotpSecret, user_id)


def remove(uow: UnitOfWork, user_id: int) -> bool:
    removed = delete(TotpSecret).where(TotpSecret.user_id == user_id)
    return uow.session.scalar(removed.returning(TotpSecret.user_id)) is not None


def rotate(uow: UnitOfWork, wrapper: KeyWrapper) -> int:
    """Wrap each secret under the current encryption key; returns how many were under another."""
    stale = select(TotpSecret).where(TotpSecret.wrapped_by != wrapper.current)
    rows = uow.session.scalars(stale.with_for_update()).all()
    for each in rows:
        wrapped = WrappedKey(each.wrapped_by, each.wrapped_secret)
        renewed = wrapper.rewrap(wrapped, _context(each.user_id))
        each.wrapped_secret = renewed.data
        each.wrapped_by = renewed.wrapped_by
    return len(rows)


def _step(secret: str, code: str) -> int | None:
    """The time step whose code this is, if that is now or next to it."""
    if not is_code(code):
        return None
    try:
        return pyotp.TOTP(secret).verify_and_get_timecode(
            code, for_time=clock.now(), valid_window=_WINDOW_STEPS
        )
    except OTPVerificationError:
        return None


def _context(user_id: int) -> str:
    return f"totp:{user_id}"


def _offer(session: str, secret: str) -> bytes:
    return f"{session}\n{secret}".encode("utf-8", "surrogatepass")
