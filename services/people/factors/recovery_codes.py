"""Recovery codes: ten words of 50 random bits, each of which stands for a lost factor once."""

import secrets

from sqlalchemy import delete, func, insert, select

from core.keyring import Keyring
from models import RecoveryCode
from storage.moments import note_once
from storage.unit_of_work import UnitOfWork

CODES_MADE = 10
# Without letters and digits that look alike on paper. 32 of them: five bits each.
_ALPHABET = "abcdefghjkmnpqrstuvwxyz023456789"
_HALF_CHARACTERS = 5
_PURPOSE = "recovery-code"


def make_anew(uow: UnitOfWork, keyring: Keyring, user_id: int) -> list[str]:
    """New codes in place of all that the person had. Only their HMACs are stored."""
    remove(uow, user_id)
    made = [f"{_half()}-{_half()}" for _ in range(CODES_MADE)]
    rows = [{"user_id": user_id, "code_hmac": _digests(keyring, each)[0]} for each in made]
    uow.session.execute(insert(RecoveryCode), rows)
    return made


def take(uow: UnitOfWork, keyring: Keyring, user_id: int, typed: str) -> bool:
    """Whether this is a code of the person's that was not used; it is from now on."""
    is_it = RecoveryCode.code_hmac.in_(_digests(keyring, typed))
    return note_once(uow, RecoveryCode.used_at, RecoveryCode.user_id == user_id, is_it) == 1


def left(uow: UnitOfWork, user_id: int) -> int:
    unused = (RecoveryCode.user_id == user_id, RecoveryCode.used_at.is_(None))
    return uow.session.scalar(select(func.count()).select_from(RecoveryCode).where(*unused)) or 0


def remove(uow: UnitOfWork, user_id: int) -> None:
    uow.session.execute(delete(RecoveryCode).where(RecoveryCode.user_id == user_id))


def _half() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(_HALF_CHARACTERS))


def _digests(keyring: Keyring, typed: str) -> list[bytes]:
    # People add spaces and capitals, and leave the hyphen out.
    code = "".join(filter(str.isalnum, typed.lower()))
    return keyring.signer(_PURPOSE).digests(code.encode("utf-8", "surrogatepass"))
