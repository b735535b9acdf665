"""The manifest of a backup, which lists its files and the keys that a restore needs."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version

import orjson
from pydantic import TypeAdapter

from core import clock, ids
from core.errors.jobs import BACKUP_DAMAGED, BACKUP_KEY_MISSING, BACKUP_NOT_FOUND
from core.keyring import Keyring
from core.settings.given_settings import variable_of
from storage.backup_files.places import BackupKeyMissing, SealedPlace
from storage.encryption import DecryptionFailed
from storage.objects import ObjectMissing

MANIFESTS = "manifests/"
NEWEST = "newest"


@dataclass(frozen=True)
class Manifest:
    """The manifest of a backup.

    Attributes:
        began_at: a time before the dump began, by the database's clock. A restore must replay the
            journal from this time on.
        release: the release of Pressroom that created the backup.
        revision: the revision of the database schema.
        database_pieces: the number of files that contain the dump.
        object_lists: the number of files that list the objects' keys.
        copied: the number of objects that no earlier backup contained.
        secret_keys: maps the id of each secret key to the key's fingerprint. A backup never
            contains the keys themselves.
        encryption_keys: maps the id of each encryption key to the key's fingerprint.
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
    """Return an id for a new backup. Sorting ids sorts the backups by time."""
    return f"{format_timestamp(began_at)}-{ids.random_hash_id(4)}"


def format_timestamp(moment: datetime) -> str:
    """Format a time for the name of a file."""
    return clock.format_timestamp(moment).replace("-", "").replace(":", "")


def backup_folder(backup_id: str) -> str:
    """Return the folder with the files of a backup."""
    return f"backups/{backup_id}/"


def current_release() -> str:
    return version("pressroom")


def fingerprint_keys(keyring: Keyring) -> dict[str, str]:
    """Return the fingerprint of each key by the key's id. A fingerprint doesn't reveal the key."""
    return {key.id: key.subkey("fingerprint").hex()[:32] for key in keyring}


def write_manifest(place: SealedPlace, manifest: Manifest) -> None:
    place.put(MANIFESTS + manifest.id, orjson.dumps(dataclasses.asdict(manifest)))


def list_backup_ids(place: SealedPlace) -> list[str]:
    """Return the ids of all complete backups, oldest first."""
    return [file.key.removeprefix(MANIFESTS) for file in place.list_objects(MANIFESTS)]


def read_manifests(place: SealedPlace) -> Iterator[Manifest]:
    """Yield the manifests of all complete backups, oldest first.

    Raises ``backup.damaged`` and ``backup.key_missing``.
    """
    return (read_manifest(place, backup_id) for backup_id in list_backup_ids(place))


def find_manifest(place: SealedPlace, backup_id: str) -> Manifest:
    """Return the manifest of a backup. The id ``newest`` stands for the newest backup.

    Raises ``backup.not_found``, ``backup.damaged`` and ``backup.key_missing``.
    """
    if backup_id == NEWEST:
        backup_id = next(reversed(list_backup_ids(place)), "")
    if backup_id not in list_backup_ids(place):
        raise BACKUP_NOT_FOUND(which=backup_id or f"where {variable_of('backup_url')} leads")
    return read_manifest(place, backup_id)


def read_manifest(place: SealedPlace, backup_id: str) -> Manifest:
    """Return a manifest. Raises ``backup.damaged`` and ``backup.key_missing``."""
    # Ignore unknown fields, which a newer release may have written.
    return TypeAdapter(Manifest).validate_json(read_file(place, MANIFESTS + backup_id))


def read_file(place: SealedPlace, name: str) -> bytes:
    """Return the bytes of a backup's file. Raises ``backup.damaged``, ``backup.key_missing``."""
    try:
        return place.get(name)
    except ObjectMissing:
        raise BACKUP_DAMAGED(name=name, reason="it is missing") from None
    except DecryptionFailed as error:
        raise BACKUP_DAMAGED(name=name, reason=error) from None
    except BackupKeyMissing as error:
        raise BACKUP_KEY_MISSING(key=error, setting=variable_of("backup_keys")) from None
