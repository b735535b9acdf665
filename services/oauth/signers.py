from dataclasses import dataclass

from core.keyring import Keyring, Signer
from services.oauth import clients, codes, tokens


@dataclass(frozen=True)
class Signers:
    """For the HMACs of each kind of secret."""

    clients: Signer
    codes: Signer
    tokens: Signer

    @classmethod
    def of(cls, keyring: Keyring) -> "Signers":
        return cls(clients.signer(keyring), codes.signer(keyring), tokens.signer(keyring))
