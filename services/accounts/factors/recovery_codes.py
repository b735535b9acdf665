"""Creates and verifies recovery codes for people who have lost their second factor.

Each recovery code works only once. The database stores only the HMACs of the recovery codes.
"""

import secrets

from sqlalchemy import delete, func, insert, select

from core.ids import PersonId
from core.keyring import Keyring
from models import RecoveryCode
from storage.unit_of_work import UnitOfWork, record_moment_once

RECOVERY_CODES_PER_PERSON = 10
# The alphabet of recovery codes has 32 characters, so each character encodes five bits. The
# alphabet omits characters that look alike on paper.
_ALPHABET = "abcdefghjkmnpqrstuvwxyz023456789"
_HALF_CHARACTERS = 5
_PURPOSE = "recovery-code"


def create_codes(uow: UnitOfWork, person_id: PersonId) -> list[str]:
    remove_codes(uow, person_id)
    codes = [f"{_random_half()}-{_random_half()}" for _ in range(RECOVERY_CODES_PER_PERSON)]
    rows = [
        {"user_id": person_id, "code_hmac": _digests(uow.settings.keyring, code)[0]}
        for code in codes
    ]
    uow.session.execute(insert(RecoveryCode), rows)
    return codes


def use_code(uow: UnitOfWork, person_id: PersonId, typed: str) -> bool:
    matches = RecoveryCode.code_hmac.in_(_digests(uow.settings.keyring, typed))
    used_codes = record_moment_once(
        uow, RecoveryCode.used_at, RecoveryCode.user_id == person_id, matches
    )
    return used_codes == 1


def count_unused_codes(uow: UnitOfWork, person_id: PersonId) -> int:
    unused = (RecoveryCode.user_id == person_id, RecoveryCode.used_at.is_(None))
    return uow.session.scalar(select(func.count()).select_from(RecoveryCode).where(*unused)) or 0


def remove_codes(uow: UnitOfWork, person_id: PersonId) -> None:
    uow.session.execute(delete(RecoveryCode).where(RecoveryCode.user_id == person_id))


def _random_half() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(_HALF_CHARACTERS))


def _digests(keyring: Keyring, typed: str) -> list[bytes]:
    # People may type a recovery code with spaces or capital letters, or without the hyphen.
    code = "".join(filter(str.isalnum, typed.lower()))
    return keyring.signer(_PURPOSE).digests(code.encode("utf-8", "surrogatepass"))
