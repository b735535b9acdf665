"""Stores backup files in a folder or in a separate bucket.

A backup place is a folder or a bucket. A backup place never contains incomplete files.
"""

import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from core.errors import DomainError, TransientError
from core.errors.jobs import BACKUP_FOLDER_UNUSABLE
from core.keyring import Keyring
from core.pauses import Pauses
from core.settings import Settings, SettingsError
from core.settings.given_settings import variable_of
from core.settings.store_settings import ObjectStorageSettings
from storage import encryption
from storage.encryption import DecryptionFailed, KeyWrapper, WrappedKey
from storage.objects import ObjectMissing, ObjectStore, StoredObject

# How long a failed call is retried. Retries let a long backup survive a short outage of the backup
# storage.
MAX_WAIT_SECONDS = 300.0
_PAUSES = Pauses.double(timedelta(seconds=0.5), timedelta(seconds=15))
_CONTENT_TYPE = "application/octet-stream"
_MAX_CONNECTIONS = 4
# The error numbers for a folder that stays unusable, so that retries are useless.
_PERMANENT_ERRORS = {errno.ENOTDIR, errno.EEXIST, errno.EACCES, errno.EPERM, errno.EROFS}
# The first bytes of every backup file.
_FORMAT_MARK = b"pressroom backup 1\n"
# The folder with the fingerprints of the backup keys that have had an id.
_KEY_FOLDER = "keys/{}/"
_WRAPPED_KEY_BYTES = encryption.KEY_BYTES + encryption.ENCRYPTION_OVERHEAD_BYTES

T = TypeVar("T")


class BackupKeyMissing(Exception):
    """The keyring lacks the key of a backup file. The exception's message is the id of the missing
    key.
    """


class BackupKeyDiffers(Exception):
    """The keyring has another key with the id of the key that a backup file was encrypted with."""


class BackupPlace(Protocol):
    """A store of named backup files.

    The methods of a backup place raise ``TransientError`` for a temporary failure, and
    ``backup.folder_unusable`` for a permanently unusable folder.
    """

    def put(self, key: str, data: bytes, content_type: str) -> None: ...

    def get(self, key: str) -> bytes:
        """Return the bytes of a backup file. Raises ``ObjectMissing``."""

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield every file whose name starts with ``prefix``, in the byte order of the names."""

    def remove(self, *keys: str) -> None:
        """Remove the named backup files, and ignore missing files."""


@dataclass(frozen=True)
class FolderPlace:
    """A folder for backup files, which may be on a network file system."""

    folder: Path

    def put(self, key: str, data: bytes, content_type: str = _CONTENT_TYPE) -> None:
        target = self._path(key)
        # The name of an unfinished file starts with a dot, so that ``list_objects`` skips the
        # unfinished files of killed processes.
        unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        with self._translate_errors(key):
            try:
                self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            except FileNotFoundError as error:
                raise self._build_unusable_error(error) from error
            try:
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with unfinished.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.replace(target)
            except FileNotFoundError as error:
                # Another process that deletes old backups has just removed the empty subfolder.
                raise TransientError(f"The folder {target.parent} no longer exists.") from error
            finally:
                unfinished.unlink(missing_ok=True)
            _flush_folder(target.parent)

    def get(self, key: str) -> bytes:
        with self._translate_errors(key):
            return self._path(key).read_bytes()

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield files in the byte order of the names. ``prefix`` ends with a slash or is empty."""
        with self._translate_errors(prefix):
            self._require_folder()
            yield from _walk_folder(self.folder / prefix, prefix)

    def remove(self, *keys: str) -> None:
        for key in keys:
            path = self._path(key)
            with self._translate_errors(key):
                path.unlink(missing_ok=True)
                for folder in path.relative_to(self.folder).parents[:-1]:
                    try:
                        (self.folder / folder).rmdir()
                    except OSError:  # Stop at a subfolder that isn't empty or was already removed.
                        break

    def _path(self, key: str) -> Path:
        if any(not part or part.startswith(".") for part in key.split("/")):
            raise TransientError(f"The name {key!r} is not valid for a backup file.")
        return self.folder / key

    def _require_folder(self) -> None:
        """Raise ``FileExistsError`` if the backup folder is a file.

        The backup folder may be missing, because the first ``put`` creates it.
        """
        try:
            mode = self.folder.stat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(mode):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    @contextmanager
    def _translate_errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise ObjectMissing(key) from error
        except OSError as error:
            if error.errno in _PERMANENT_ERRORS:
                raise self._build_unusable_error(error) from error
            raise TransientError(f"The backup folder can't be used: {error.strerror}.") from error

    def _build_unusable_error(self, error: OSError) -> DomainError:
        # Replace the message for EEXIST with the one for ENOTDIR, "Not a directory".
        number = errno.ENOTDIR if error.errno == errno.EEXIST else error.errno
        return BACKUP_FOLDER_UNUSABLE(
            folder=self.folder, setting=variable_of("backup_url"), reason=os.strerror(number or 0)
        )


def _walk_folder(folder: Path, prefix: str) -> Iterator[StoredObject]:
    if not folder.is_dir():
        return
    # Sort folder names with a final slash, so that files have the same order as in a bucket.
    entries = {
        f"{entry.name}/" if entry.is_dir() else entry.name: entry
        for entry in os.scandir(folder)
        if not entry.name.startswith(".")
    }
    for name, entry in sorted(entries.items(), key=itemgetter(0)):
        if name.endswith("/"):
            yield from _walk_folder(Path(entry.path), prefix + name)
        else:
            changed_at = datetime.fromtimestamp(entry.stat().st_mtime, UTC)
            yield StoredObject(prefix + name, changed_at)


def _flush_folder(folder: Path) -> None:
    """Flush a folder to the disk, so that a file's new name survives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_place(settings: Settings) -> BackupPlace:
    variable = variable_of("backup_url")
    if settings.backup_url is None:
        raise SettingsError(f"{variable}: is required, because it sets where backups are stored")
    url = urlsplit(settings.backup_url.get_secret_value())
    if url.scheme == "file":
        return FolderPlace(Path(unquote(url.path)))
    bucket, _, prefix = url.path.strip("/").partition("/")
    options = {name: values[-1] for name, values in parse_qs(url.query).items()}
    # Pass every field, because ``ObjectStorageSettings`` would read a missing field from an
    # environment variable.
    bucket_settings = ObjectStorageSettings.model_validate(
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
    if (bucket_settings.s3_endpoint, bucket) == (settings.s3_endpoint, settings.s3_bucket):
        raise SettingsError(f"{variable}: must not be the bucket that is backed up")
    object_prefix = f"{prefix}/" if prefix else ""
    return ObjectStore(bucket_settings, connections=_MAX_CONNECTIONS, prefix=object_prefix)


@dataclass(frozen=True)
class SealedPlace:
    """A backup place that encrypts its files.

    A backup file begins with its data key, encrypted with a backup key. The data key is bound to
    the file's name, so that a renamed file can't be decrypted.
    """

    place: BackupPlace
    keyring: Keyring
    max_wait_seconds: float = MAX_WAIT_SECONDS

    def put(self, name: str, plain: bytes) -> None:
        key, wrapped = KeyWrapper(self.keyring).create_key(name)
        key_id = wrapped.wrapped_by.encode()
        encrypted = encryption.encrypt(plain, key, name)
        content = b"".join((_FORMAT_MARK, bytes([len(key_id)]), key_id, wrapped.data, encrypted))
        self._retry(lambda: self.place.put(name, content, _CONTENT_TYPE))

    def get(self, name: str) -> bytes:
        """Return the decrypted bytes of a backup file.

        Raises ``DecryptionFailed`` if the file was changed. Raises ``BackupKeyMissing`` or
        ``BackupKeyDiffers`` if the keyring lacks the file's backup key.
        """
        content = self._retry(lambda: self.place.get(name))
        if not content.startswith(_FORMAT_MARK) or len(content) == len(_FORMAT_MARK):
            raise DecryptionFailed("the file is not a backup file")
        begin = len(_FORMAT_MARK) + 1
        end = begin + content[begin - 1]
        key_id = content[begin:end].decode("ascii", "replace")
        if self.keyring.get(key_id) is None:
            raise BackupKeyMissing(key_id)
        wrapped = WrappedKey(key_id, content[end : end + _WRAPPED_KEY_BYTES])
        try:
            key = KeyWrapper(self.keyring).unwrap(wrapped, name)
        except DecryptionFailed as error:
            raise self._explain_failure(key_id, error) from None
        return encryption.decrypt(content[end + _WRAPPED_KEY_BYTES :], key, name)

    def note_key(self) -> None:
        """Store the fingerprint of the current backup key, unless it is stored already."""
        key = self.keyring.current
        prefix = _KEY_FOLDER.format(key.id)
        name = prefix + key.fingerprint
        if all(file.key != name for file in self.list_objects(prefix)):
            self.put(name, b"")

    def _explain_failure(self, key_id: str, error: DecryptionFailed) -> Exception:
        key = self.keyring.get(key_id)
        assert key is not None
        prefix = _KEY_FOLDER.format(key_id)
        fingerprints = {file.key.removeprefix(prefix) for file in self.list_objects(prefix)}
        if fingerprints == {key.fingerprint}:
            return error
        if fingerprints and key.fingerprint not in fingerprints:
            return BackupKeyDiffers(key_id)
        # Earlier releases stored no fingerprints, or several keys have had this id.
        return DecryptionFailed(
            f"the file is damaged, or {variable_of('backup_keys')} has another key with the same id"
        )

    def list_objects(self, prefix: str) -> Iterator[StoredObject]:
        return self.place.list_objects(prefix)

    def remove(self, *names: str) -> None:
        self._retry(lambda: self.place.remove(*names))

    def _retry(self, call: Callable[[], T]) -> T:
        return retry_transient_errors(call, self.max_wait_seconds)


def retry_transient_errors(call: Callable[[], T], max_wait_seconds: float = MAX_WAIT_SECONDS) -> T:
    """Retry for ``max_wait_seconds``, and then raise the last ``TransientError``."""
    deadline = time.monotonic() + max_wait_seconds
    failures = 0
    while True:
        try:
            return call()
        except TransientError:
            failures += 1
            pause = _PAUSES.choose(failures).total_seconds()
            if time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)


def open_sealed_place(
    settings: Settings, *, max_wait_seconds: float = MAX_WAIT_SECONDS
) -> SealedPlace:
    place = open_place(settings)
    if settings.backup_keys is None:
        raise SettingsError(
            f"{variable_of('backup_keys')}: is required, because backups are encrypted"
        )
    keyring = Keyring.parse(settings.backup_keys.get_secret_value())
    return SealedPlace(place, keyring, max_wait_seconds)
