"""Creates and verifies signed proofs, for example that a person passed the first login step.

A proof expires, can be used only once, and is bound to a subject, such as one browser's cookie.
Creating a proof writes nothing to the database, so strangers can't fill the database by requesting
proofs.
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


def create_proof(keyring: Keyring, subject: str) -> str:
    expires = int((clock.now() + PROOF_LIFETIME).timestamp())
    stem = f"{expires}.{secrets.token_urlsafe(16)}"
    return f"{stem}.{keyring.signer(_PURPOSE).sign(_message(stem, subject))}"


def is_valid_proof(keyring: Keyring, subject: str, proof: str) -> bool:
    """Return whether a proof for ``subject`` is signed and unexpired, even if it was used."""
    stem, signature = _split(proof)
    if not keyring.signer(_PURPOSE).verify(_message(stem, subject), signature):
        return False
    return _expiry(stem) > clock.now()


def spend_proof(uow: UnitOfWork, proof: str) -> bool:
    """Mark a valid proof as used, and return true. Return false if the proof was already used.

    Among simultaneous calls with a proof, only one returns true.
    """
    stem, _ = _split(proof)
    row = insert(SpentProof).values(proof_hash=_hash(stem), expires_at=_expiry(stem))
    result = uow.session.execute(row.on_conflict_do_nothing().returning(SpentProof.proof_hash))
    return result.first() is not None


def is_spent_proof(uow: UnitOfWork, proof: str) -> bool:
    stem, _ = _split(proof)
    query = select(SpentProof.proof_hash).where(SpentProof.proof_hash == _hash(stem))
    return uow.session.scalar(query) is not None


def _split(proof: str) -> tuple[str, str]:
    expires, _, rest = proof.partition(".")
    nonce, _, signature = rest.partition(".")
    return f"{expires}.{nonce}", signature


def _expiry(stem: str) -> datetime:
    return datetime.fromtimestamp(int(stem.partition(".")[0]), UTC)


def _message(stem: str, subject: str) -> bytes:
    return f"{stem}\n{subject}".encode("utf-8", "surrogatepass")


def _hash(stem: str) -> bytes:
    # The hash must not depend on a secret key, because processes can have different keys during a
    # key rotation.
    return hashlib.sha256(stem.encode()).digest()
