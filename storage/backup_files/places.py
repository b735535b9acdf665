"""Where backups lie: a folder, or a bucket that is not the product's own.

Files are written whole or not at all, and never changed but for those that are written again.
"""

import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from core.errors import DomainError, TransientError
from core.errors.jobs import BACKUP_FOLDER_UNUSABLE
from core.keyring import Keyring
from core.settings import Settings, SettingsError
from core.settings.given_settings import variable_of
from core.settings.store_settings import ObjectStorageSettings
from storage import encryption
from storage.encryption import KeyWrapper, Tampered, WrappedKey
from storage.objects import ObjectMissing, ObjectStore, StoredObject

_BYTES = "application/octet-stream"
_CONNECTIONS = 4
# Reasons for which a folder is no place, today as tomorrow: trying again can't help.
_LASTING = {errno.ENOTDIR, errno.EEXIST, errno.EACCES, errno.EPERM, errno.EROFS}


class BackupPlace(Protocol):
    """Named files. Every failure of the place is a ``TransientError``.

    A folder that can't be one, whatever time passes, raises ``backup.folder_unusable`` instead.
    """

    def put(self, key: str, data: bytes, content_type: str) -> None: ...

    def get(self, key: str) -> bytes:
        """The whole file; raises ``ObjectMissing``."""

    def stored(self, prefix: str = "") -> Iterator[StoredObject]:
        """Every file whose name begins so, in the order of the names' bytes."""

    def remove(self, *keys: str) -> None:
        """Remove these files; one that is missing already is no error."""


@dataclass(frozen=True)
class FolderPlace:
    """Files below a folder of this machine, perhaps of a network's file system."""

    folder: Path

    def put(self, key: str, data: bytes, content_type: str = _BYTES) -> None:
        target = self._path(key)
        # A name that begins with a dot is no file of a backup: what a kill leaves is not listed.
        unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        with self._translated(key):
            try:
                self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            except FileNotFoundError as error:
                raise self._unusable(error) from error
            try:
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with unfinished.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.replace(target)
            except FileNotFoundError as error:
                # Pruning removed the folder, which was empty.
                raise TransientError(f"The folder {target.parent} is gone.") from error
            finally:
                unfinished.unlink(missing_ok=True)
            _flush_names(target.parent)

    def get(self, key: str) -> bytes:
        with self._translated(key):
            return self._path(key).read_bytes()

    def stored(self, prefix: str = "") -> Iterator[StoredObject]:
        """``prefix`` is a folder's, with its slash, or nothing."""
        with self._translated(prefix):
            self._require_folder()
            yield from _walked(self.folder / prefix, prefix)

    def remove(self, *keys: str) -> None:
        for key in keys:
            path = self._path(key)
            with self._translated(key):
                path.unlink(missing_ok=True)
                for folder in path.relative_to(self.folder).parents[:-1]:
                    try:
                        (self.folder / folder).rmdir()
                    except OSError:  # something is in it, or it is gone already
                        break

    def _path(self, key: str) -> Path:
        if any(not part or part.startswith(".") for part in key.split("/")):
            raise TransientError(f"A file of a backup can't have the name {key!r}.")
        return self.folder / key

    def _require_folder(self) -> None:
        """Raise an error for a file in its place. A missing folder is made with the first file."""
        try:
            mode = self.folder.stat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(mode):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise ObjectMissing(key) from error
        except OSError as error:
            if error.errno in _LASTING:
                raise self._unusable(error) from error
            raise TransientError(f"The folder of the backups: {error.strerror}.") from error

    def _unusable(self, error: OSError) -> DomainError:
        # The path exists and is no folder.
        number = errno.ENOTDIR if error.errno == errno.EEXIST else error.errno
        return BACKUP_FOLDER_UNUSABLE(
            folder=self.folder, setting=variable_of("backup_url"), reason=os.strerror(number or 0)
        )


def _walked(folder: Path, prefix: str) -> Iterator[StoredObject]:
    if not folder.is_dir():
        return
    # A folder's slash counts in the order of names, as it does in a bucket.
    entries = {
        f"{entry.name}/" if entry.is_dir() else entry.name: entry
        for entry in os.scandir(folder)
        if not entry.name.startswith(".")
    }
    for name, entry in sorted(entries.items(), key=itemgetter(0)):
        if name.endswith("/"):
            yield from _walked(Path(entry.path), prefix + name)
        else:
            changed_at = datetime.fromtimestamp(entry.stat().st_mtime, UTC)
            yield StoredObject(prefix + name, changed_at)


def _flush_names(folder: Path) -> None:
    """A file's new name outlasts a loss of power only once its folder is on the disk too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_place(settings: Settings) -> BackupPlace:
    """Where the settings have backups go; raises ``SettingsError`` where they name no such place.

    Nothing connects before its first use.
    """
    variable = variable_of("backup_url")
    if settings.backup_url is None:
        raise SettingsError(f"{variable}: is needed: where backups go")
    url = urlsplit(settings.backup_url.get_secret_value())
    if url.scheme == "file":
        return FolderPlace(Path(unquote(url.path)))
    bucket, _, prefix = url.path.strip("/").partition("/")
    options = {name: values[-1] for name, values in parse_qs(url.query).items()}
    # Each setting is named, since one that is left out would be read from the environment.
    own = ObjectStorageSettings.model_validate(
        {
            "s3_endpoint": f"{url.scheme}://{url.netloc.rpartition('@')[2]}",
            "s3_region": options.get("region"),
            "s3_addressing": options.get("addressing", "auto"),
            "s3_access_key": unquote(url.username) if url.username else None,
            "s3_secret_key": unquote(url.password) if url.password else None,
            "s3_keys_url": settings.s3_keys_url,
            "s3_bucket": bucket,
            "s3_encryption": None,
        }
    )
    if (own.s3_endpoint, bucket) == (settings.s3_endpoint, settings.s3_bucket):
        raise SettingsError(f"{variable}: names the bucket that is backed up; name another")
    return ObjectStore(own, connections=_CONNECTIONS, prefix=f"{prefix}/" if prefix else "")


_FORMAT = b"pressroom backup 1\n"
_WRAPPED_BYTES = encryption.KEY_BYTES + encryption.SEALED_BYTES_MORE
# A backup of hours outlasts a storage that is away for some minutes.
MAX_WAIT_SECONDS = 300.0
_MAX_PAUSE_SECONDS = 15.0

T = TypeVar("T")


class BackupKeyMissing(Exception):
    """The id of the backup key that a file needs, and that is not in the keyring."""


@dataclass(frozen=True)
class SealedPlace:
    """A place for backups whose files are encrypted.

    Each file is encrypted with a key of its own. A file begins with its key, which is wrapped under
    one of the backup keys. The wrapped key is bound to the name of the file, so that a file under
    the wrong name can't be decrypted.

    Attributes:
        max_wait_seconds: for how long a call is tried while the place fails.
    """

    place: BackupPlace
    keyring: Keyring
    max_wait_seconds: float = MAX_WAIT_SECONDS

    def put(self, name: str, plain: bytes) -> None:
        key, wrapped = KeyWrapper(self.keyring).new_key(name)
        key_id = wrapped.wrapped_by.encode()
        sealed = encryption.encrypt(plain, key, name)
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
        return encryption.decrypt(whole[end + _WRAPPED_BYTES :], key, name)

    def stored(self, prefix: str) -> Iterator[StoredObject]:
        return self.place.stored(prefix)

    def remove(self, *names: str) -> None:
        self._patiently(lambda: self.place.remove(*names))

    def _patiently(self, call: Callable[[], T]) -> T:
        return patiently(call, self.max_wait_seconds)


def patiently(call: Callable[[], T], max_wait_seconds: float = MAX_WAIT_SECONDS) -> T:
    """Return the call's result, trying again for so long while it fails for reasons that may
    pass.
    """
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
