"""Envelope encryption of objects: AES-256-GCM (NIST SP 800-38D).

Each object has a random key of its own. The key is stored wrapped (encrypted, AES-256-GCM too)
under one of ``ENCRYPTION_KEYS``: a rotation of those rewraps keys and rewrites no object. The
identity of an object (``context``, such as its name) is authenticated with its bytes, so that two
swapped objects or wrapped keys are an error like any flipped bit.
"""

import secrets
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from core.keyring import Keyring

NONCE_BYTES = 12
KEY_BYTES = 32
_TAG_BYTES = 16
# How much longer encrypted bytes are than plain ones.
SEALED_BYTES_MORE = NONCE_BYTES + _TAG_BYTES


class Tampered(Exception):
    """The bytes differ from those that were encrypted, or their key is gone."""


@dataclass(frozen=True)
class WrappedKey:
    wrapped_by: str
    data: bytes


class KeyWrapper:
    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def new_key(self, context: str) -> tuple[bytes, WrappedKey]:
        """A random 256-bit key, plain and wrapped under the current encryption key."""
        plain = secrets.token_bytes(KEY_BYTES)
        return plain, self.wrap(plain, context)

    def wrap(self, plain: bytes, context: str) -> WrappedKey:
        """The key under the current encryption key."""
        current = self._keyring.current
        return WrappedKey(current.id, encrypt(plain, current.subkey("wrap"), f"key:{context}"))

    @property
    def current(self) -> str:
        """The id of the encryption key that wraps new keys."""
        return self._keyring.current.id

    def rewrap(self, wrapped: WrappedKey, context: str) -> WrappedKey:
        """Unwrap a key, and wrap it under the current encryption key. Raises ``Tampered``."""
        return self.wrap(self.unwrap(wrapped, context), context)

    def unwrap(self, wrapped: WrappedKey, context: str) -> bytes:
        key = self._keyring.get(wrapped.wrapped_by)
        if key is None:
            raise Tampered(f"no encryption key with the id {wrapped.wrapped_by!r}")
        return decrypt(wrapped.data, key.subkey("wrap"), f"key:{context}")


def encrypt(plain: bytes, key: bytes, context: str) -> bytes:
    """Nonce, ciphertext and tag."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, context.encode())


def decrypt(sealed: bytes, key: bytes, context: str) -> bytes:
    """The plain bytes, after their tag was checked; raises ``Tampered``."""
    try:
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], context.encode())
    except (InvalidTag, ValueError) as error:
        raise Tampered("the object's bytes fail their check") from error


def seal(plain: bytes, key: bytes | None, object_key: str) -> bytes:
    """An object as it is stored: in plain without a key."""
    return plain if key is None else encrypt(plain, key, object_key)


def unseal(stored: bytes, key: bytes | None, object_key: str) -> bytes:
    """The plain bytes of an object; raises ``Tampered``."""
    return stored if key is None else decrypt(stored, key, object_key)
