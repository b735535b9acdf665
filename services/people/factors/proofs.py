"""Proofs: short-lived signed values that a browser gets from us and brings back, once.

Nothing is stored when one is made, so a stranger who asks for many fills nothing. Each is about one
thing, such as the cookie of a browser, without which it is worth nothing.
"""

import hashlib
import secrets
from datetime import UTC, datetime, timedelta

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from core import clock
from core.keyring import Keyring
from models import SpentProof
from storage.unit_of_work import UnitOfWork

PROOF_LIFETIME = timedelta(minutes=10)
_PURPOSE = "factor-proof"


def make(keyring: Keyring, about: str) -> str:
    expires = int((clock.now() + PROOF_LIFETIME).timestamp())
    stem = f"{expires}.{secrets.token_urlsafe(16)}"
    return f"{stem}.{keyring.signer(_PURPOSE).sign(_message(stem, about))}"


def is_valid(keyring: Keyring, about: str, proof: str) -> bool:
    """Whether we made this proof about this thing, lately. It may be spent already."""
    stem, signature = _parts(proof)
    if not keyring.signer(_PURPOSE).verify(_message(stem, about), signature):
        return False
    return _expiry(stem) > clock.now()


def spend(uow: UnitOfWork, proof: str) -> bool:
    """Use a valid proof up; whether this was its first use, also of two at the same moment."""
    stem, _ = _parts(proof)
    spent = insert(SpentProof).values(proof_hash=_hash(stem), expires_at=_expiry(stem))
    made = uow.session.execute(spent.on_conflict_do_nothing().returning(SpentProof.proof_hash))
    return made.first() is not None


def is_spent(uow: UnitOfWork, proof: str) -> bool:
    stem, _ = _parts(proof)
    spent = select(SpentProof.proof_hash).where(SpentProof.proof_hash == _hash(stem))
    return uow.session.scalar(spent) is not None


def _hash(stem: str) -> bytes:
    # Without the signature and without a key: processes may sign with different ones.
    return hashlib.sha256(stem.encode()).digest()


def _parts(proof: str) -> tuple[str, str]:
    expires, _, rest = proof.partition(".")
    nonce, _, signature = rest.partition(".")
    return f"{expires}.{nonce}", signature


def _expiry(stem: str) -> datetime:
    return datetime.fromtimestamp(int(stem.partition(".")[0]), UTC)


def _message(stem: str, about: str) -> bytes:
    return f"{stem}\n{about}".encode("utf-8", "surrogatepass")
