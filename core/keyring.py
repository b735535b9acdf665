"""Keyrings of secret keys, which an operator can rotate.

The text of a keyring has the format ``id:base64url,id:base64url``. The first key of a keyring signs
messages, and every key can verify signatures. HKDF-SHA256 (RFC 5869) derives a separate subkey from
each key for each purpose.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial

MIN_KEY_BYTES = 32
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,16}\Z")


@dataclass(frozen=True)
class Key:
    id: str
    secret: bytes = field(repr=False)

    def subkey(self, purpose: str) -> bytes:
        """Derive a 32-byte subkey for one purpose, such as ``api-key``."""
        # Import ``cryptography`` only when needed, because the import is slow and most commands
        # don't derive subkeys.
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        derivation = HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose.encode())
        return derivation.derive(self.secret)

    @property
    def fingerprint(self) -> str:
        """Return a text that identifies the key. The key can't be derived from its fingerprint."""
        return self.subkey("fingerprint").hex()[:32]


class Keyring:
    def __init__(self, keys: list[Key]) -> None:
        if len({key.id for key in keys}) != len(keys) or not keys:
            raise ValueError("must contain at least one key, and each id only once")
        self._keys = {key.id: key for key in keys}
        self.current = keys[0]
        # The signer for each purpose is cached, because deriving subkeys is slow.
        self.signer = cache(partial(Signer, self))

    @classmethod
    def parse(cls, text: str) -> "Keyring":
        """Raise ``ValueError`` for an invalid keyring. The message never contains a secret."""
        keys = []
        for entry in filter(None, map(str.strip, text.split(","))):
            key_id, _, encoded = entry.partition(":")
            if not _KEY_ID.match(key_id):
                raise ValueError(
                    "must contain keys of the form id:base64url, where the id has 1 to 16 of "
                    "[A-Za-z0-9_-]"
                )
            try:
                secret = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
            except binascii.Error as error:
                raise ValueError(f"key {key_id!r} is not base64url") from error
            if len(secret) < MIN_KEY_BYTES:
                raise ValueError(f"key {key_id!r} is shorter than {MIN_KEY_BYTES} bytes")
            keys.append(Key(key_id, secret))
        return cls(keys)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys.values())

    def get(self, key_id: str) -> Key | None:
        return self._keys.get(key_id)


class Signer:
    """Signs and verifies messages for one purpose with HMAC-SHA256.

    Each HMAC is truncated to ``length`` bytes.
    """

    def __init__(self, keyring: Keyring, purpose: str, *, length: int = 32) -> None:
        self._length = length
        self._current = keyring.current.id
        # Optimization: creating HMACs and request ids without switching threads (decision 17).
        # ``hmac.digest`` releases Python's global lock, so that another thread takes the lock. A
        # copied HMAC object keeps the lock for a short message.
        self._keyed_hmacs = {
            key.id: hmac.new(key.subkey(purpose), digestmod=hashlib.sha256) for key in keyring
        }

    def digest(self, message: bytes) -> bytes:
        return self._digest(self._current, message)

    def digests(self, message: bytes) -> list[bytes]:
        """Return an HMAC per key, current key first. A stored HMAC may be from any of the keys."""
        return [self._digest(key_id, message) for key_id in self._keyed_hmacs]

    def sign(self, message: bytes) -> str:
        return f"{self._current}.{_base64url(self.digest(message))}"

    def verify(self, message: bytes, signature: str) -> bool:
        """Compare in constant time, to prevent timing attacks."""
        key_id, _, encoded = signature.partition(".")
        if key_id not in self._keyed_hmacs:
            return False
        expected = _base64url(self._digest(key_id, message))
        return hmac.compare_digest(expected.encode(), encoded.encode())

    def _digest(self, key_id: str, message: bytes) -> bytes:
        message_hmac = self._keyed_hmacs[key_id].copy()
        message_hmac.update(message)
        return message_hmac.digest()[: self._length]


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
