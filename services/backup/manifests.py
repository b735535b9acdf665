"""Reads and writes the manifests of backups.

A manifest describes the files of a backup, and identifies the keys that are needed to restore it.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version

import orjson
from pydantic import TypeAdapter

from core import clock, ids
from core.errors.jobs import (
    BACKUP_DAMAGED,
    BACKUP_KEY_DIFFERS,
    BACKUP_KEY_MISSING,
    BACKUP_NOT_FOUND,
)
from core.keyring import Keyring
from core.settings.given_settings import variable_of
from storage.backup_files.places import BackupKeyDiffers, BackupKeyMissing, SealedPlace
from storage.encryption import DecryptionFailed
from storage.objects import ObjectMissing

MANIFESTS = "manifests/"
NEWEST = "newest"


@dataclass(frozen=True)
class Manifest:
    """Describes a complete backup.

    Attributes:
        began_at: the time when the backup began, by the database's clock. A restore replays the
            journal from ``began_at`` on.
        revision: the revision of the database schema in the dump.
        database_pieces: the number of files that contain the database dump.
        object_lists: the number of files that list the keys of the objects in the backup.
        secret_keys: fingerprints by key id, because a backup doesn't contain the secret keys.
        encryption_keys: fingerprints by key id.
    """

    id: str
    began_at: datetime
    finished_at: datetime
    release: str
    revision: str
    database_pieces: int
    database_bytes: int
    object_lists: int
    objects: int
    copied: int
    secret_keys: dict[str, str]
    encryption_keys: dict[str, str]


def create_backup_id(began_at: datetime) -> str:
    """Return an id for a new backup. Sorting backup ids sorts the backups by time."""
    return f"{format_timestamp(began_at)}-{ids.random_hash_id(4)}"


def format_timestamp(moment: datetime) -> str:
    return clock.format_timestamp(moment).replace("-", "").replace(":", "")


def backup_folder(backup_id: str) -> str:
    return f"backups/{backup_id}/"


def current_release() -> str:
    return version("pressroom")


def fingerprint_keys(keyring: Keyring) -> dict[str, str]:
    return {key.id: key.fingerprint for key in keyring}


def write_manifest(place: SealedPlace, manifest: Manifest) -> None:
    place.put(MANIFESTS + manifest.id, orjson.dumps(dataclasses.asdict(manifest)))


def list_backup_ids(place: SealedPlace) -> list[str]:
    """Return the ids of all complete backups, oldest first."""
    return [file.key.removeprefix(MANIFESTS) for file in place.list_objects(MANIFESTS)]


def read_manifests(place: SealedPlace) -> Iterator[Manifest]:
    """Yield the manifests of all complete backups, oldest first."""
    return (read_manifest(place, backup_id) for backup_id in list_backup_ids(place))


def find_manifest(place: SealedPlace, backup_id: str) -> Manifest:
    if backup_id == NEWEST:
        backup_id = next(reversed(list_backup_ids(place)), "")
    if backup_id not in list_backup_ids(place):
        raise BACKUP_NOT_FOUND(which=backup_id or f"in {variable_of('backup_url')}")
    return read_manifest(place, backup_id)


def read_manifest(place: SealedPlace, backup_id: str) -> Manifest:
    # Ignore unknown fields, because a newer release of Pressroom may have written the manifest.
    return TypeAdapter(Manifest).validate_json(read_file(place, MANIFESTS + backup_id))


def read_file(place: SealedPlace, name: str) -> bytes:
    """Return the decrypted content of a backup file.

    Raises ``backup.damaged`` if the file is missing or unreadable, and ``backup.key_missing`` or
    ``backup.key_differs`` if its encryption key isn't configured.
    """
    try:
        return place.get(name)
    except ObjectMissing:
        raise BACKUP_DAMAGED(name=name, reason="the file is missing") from None
    except DecryptionFailed as error:
        raise BACKUP_DAMAGED(name=name, reason=error) from None
    except BackupKeyMissing as error:
        raise BACKUP_KEY_MISSING(key=error, setting=variable_of("backup_keys")) from None
    except BackupKeyDiffers as error:
        raise BACKUP_KEY_DIFFERS(key=error, setting=variable_of("backup_keys")) from None
