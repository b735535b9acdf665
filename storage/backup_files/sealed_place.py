"""The files of backups, each encrypted by itself under a key of its own (AES-256-GCM).

That key is wrapped under one of the backup keys, and stands before the bytes, so that a file needs
no other file to be opened. Its name is authenticated with it: a file in another one's place is an
error like a flipped bit.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from core.errors import TransientError
from core.keyring import Keyring
from core.settings import Settings, SettingsError
from core.settings.given_settings import variable_of
from storage.backup_files.places import BackupPlace, open_place
from storage.encryption import (
    KEY_BYTES,
    SEALED_BYTES_MORE,
    KeyWrapper,
    Tampered,
    WrappedKey,
    decrypt,
    encrypt,
)
from storage.objects import StoredObject

_FORMAT = b"pressroom backup 1\n"
_WRAPPED_BYTES = KEY_BYTES + SEALED_BYTES_MORE
# A backup of hours outlasts a storage that is away for some minutes.
MAX_WAIT_SECONDS = 300.0
_MAX_PAUSE_SECONDS = 15.0

T = TypeVar("T")


class BackupKeyMissing(Exception):
    """The id of the backup key that a file needs, and that is not in the keyring."""


@dataclass(frozen=True)
class SealedPlace:
    """
    Attributes:
        max_wait_seconds: for how long a call is tried while the place fails.
    """

    place: BackupPlace
    keyring: Keyring
    max_wait_seconds: float = MAX_WAIT_SECONDS

    def put(self, name: str, plain: bytes) -> None:
        key, wrapped = KeyWrapper(self.keyring).new_key(name)
        key_id = wrapped.wrapped_by.encode()
        sealed = encrypt(plain, key, name)
        whole = b"".join((_FORMAT, bytes([len(key_id)]), key_id, wrapped.data, sealed))
        self._patiently(lambda: self.place.put(name, whole, "application/octet-stream"))

    def get(self, name: str) -> bytes:
        """Raises ``ObjectMissing``, ``Tampered`` and ``BackupKeyMissing``."""
        whole = self._patiently(lambda: self.place.get(name))
        if not whole.startswith(_FORMAT) or len(whole) == len(_FORMAT):
            raise Tampered("the file does not begin as a file of a backup")
        begin = len(_FORMAT) + 1
        end = begin + whole[begin - 1]
        key_id = whole[begin:end].decode("ascii", "replace")
        if self.keyring.get(key_id) is None:
            raise BackupKeyMissing(key_id)
        wrapped = WrappedKey(key_id, whole[end : end + _WRAPPED_BYTES])
        key = KeyWrapper(self.keyring).unwrap(wrapped, name)
        return decrypt(whole[end + _WRAPPED_BYTES :], key, name)

    def stored(self, prefix: str) -> Iterator[StoredObject]:
        return self.place.stored(prefix)

    def remove(self, *names: str) -> None:
        self._patiently(lambda: self.place.remove(*names))

    def _patiently(self, call: Callable[[], T]) -> T:
        return patiently(call, self.max_wait_seconds)


def patiently(call: Callable[[], T], max_wait_seconds: float = MAX_WAIT_SECONDS) -> T:
    """What the call returns, tried for so long while it fails for reasons that may pass."""
    ends, pause = time.monotonic() + max_wait_seconds, 0.5
    while True:
        try:
            return call()
        except TransientError:
            if time.monotonic() + pause > ends:
                raise
        time.sleep(pause)
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)


def open_sealed_place(
    settings: Settings, *, max_wait_seconds: float = MAX_WAIT_SECONDS
) -> SealedPlace:
    """The place of the settings; raises ``SettingsError`` where they name none, or no keys."""
    place = open_place(settings)
    if settings.backup_keys is None:
        raise SettingsError(f"{variable_of('backup_keys')}: is needed: backups are encrypted")
    keyring = Keyring.parse(settings.backup_keys.get_secret_value())
    return SealedPlace(place, keyring, max_wait_seconds)
