"""Envelope encryption of stored objects with AES-256-GCM (NIST SP 800-38D).

Each stored object has a random data key. Data keys are stored wrapped, which means encrypted with
one of ``ENCRYPTION_KEYS``. A rotation of ``ENCRYPTION_KEYS`` encrypts all data keys again, but not
the objects. The ``context`` of an object, such as its name, is authenticated. An object or wrapped
key that was swapped with another one can't be decrypted.
"""

import base64
import binascii
import secrets
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from core.keyring import Keyring

NONCE_BYTES = 12
KEY_BYTES = 32
_TAG_BYTES = 16
# How many bytes encryption adds.
ENCRYPTION_OVERHEAD_BYTES = NONCE_BYTES + _TAG_BYTES


class DecryptionFailed(Exception):
    """The encrypted bytes were changed, or the key is missing."""


@dataclass(frozen=True)
class WrappedKey:
    wrapped_by: str
    data: bytes


class KeyWrapper:
    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def create_key(self, context: str) -> tuple[bytes, WrappedKey]:
        plain = secrets.token_bytes(KEY_BYTES)
        return plain, self.wrap(plain, context)

    def wrap(self, plain: bytes, context: str) -> WrappedKey:
        current = self._keyring.current
        return WrappedKey(current.id, encrypt(plain, current.subkey("wrap"), f"key:{context}"))

    @property
    def current(self) -> str:
        """Return the id of the encryption key that wraps new data keys."""
        return self._keyring.current.id

    def rewrap(self, wrapped: WrappedKey, context: str) -> WrappedKey:
        return self.wrap(self.unwrap(wrapped, context), context)

    def unwrap(self, wrapped: WrappedKey, context: str) -> bytes:
        key = self._keyring.get(wrapped.wrapped_by)
        if key is None:
            raise DecryptionFailed(f"no encryption key with the id {wrapped.wrapped_by!r}")
        return decrypt(wrapped.data, key.subkey("wrap"), f"key:{context}")


def encrypt(plain: bytes, key: bytes, context: str) -> bytes:
    """Return the nonce, the ciphertext and the authentication tag."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, context.encode())


def decrypt(sealed: bytes, key: bytes, context: str) -> bytes:
    try:
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], context.encode())
    except (InvalidTag, ValueError) as error:
        raise DecryptionFailed("the object's bytes fail their check") from error


def seal_text(keyring: Keyring, plain: bytes, purpose: str) -> str:
    """Encrypt bytes with the current key of a keyring, as text for a cookie or a hidden input."""
    key = keyring.current
    sealed = encrypt(plain, key.subkey(purpose), purpose)
    # Remove the padding, because Pressroom drops cookies that need quotation marks.
    return f"{key.id}.{base64.urlsafe_b64encode(sealed).decode().rstrip('=')}"


def open_text(keyring: Keyring, text: str, purpose: str) -> bytes:
    """Decrypt the result of ``seal_text``. Raises ``DecryptionFailed`` for a forged text."""
    key_id, _, encoded = text.partition(".")
    key = keyring.get(key_id)
    if key is None:
        raise DecryptionFailed(f"no key with the id {key_id[:16]!r}")
    try:
        sealed = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (binascii.Error, ValueError) as error:
        raise DecryptionFailed("the text is not base64url") from error
    return decrypt(sealed, key.subkey(purpose), purpose)


def seal(plain: bytes, key: bytes | None, object_key: str) -> bytes:
    """Return the unencrypted bytes if ``key`` is ``None``."""
    return plain if key is None else encrypt(plain, key, object_key)


def unseal(stored: bytes, key: bytes | None, object_key: str) -> bytes:
    return stored if key is None else decrypt(stored, key, object_key)
