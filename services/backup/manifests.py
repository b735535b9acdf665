"""The manifest of a backup: when and from what it was made, and which keys it needs."""

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
    """The manifest of a backup: when it was made, and which files it has.

    Attributes:
        began_at: before the dump began, by the database's clock: what the journal told later must
            be replayed.
        release: of the program that made the backup.
        revision: of the database's tables.
        database_pieces: in how many files the dump is.
        object_lists: in how many files the objects' keys are.
        copied: how many of the objects no earlier backup had.
        secret_keys: a fingerprint of each key of the ring, by its id; the keys are in no backup.
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


def new_id(began_at: datetime) -> str:
    """Ids are in the order of time."""
    return f"{stamp(began_at)}-{ids.random_hash_id(4)}"


def stamp(moment: datetime) -> str:
    """The moment as the names of files have it."""
    return clock.format_timestamp(moment).replace("-", "").replace(":", "")


def folder(backup_id: str) -> str:
    """Under which the parts of a backup lie."""
    return f"backups/{backup_id}/"


def release() -> str:
    return version("pressroom")


def fingerprints(keyring: Keyring) -> dict[str, str]:
    """Return what tells keys apart and gives none away, by the keys' ids."""
    return {key.id: key.subkey("fingerprint").hex()[:32] for key in keyring}


def write(place: SealedPlace, manifest: Manifest) -> None:
    place.put(MANIFESTS + manifest.id, orjson.dumps(dataclasses.asdict(manifest)))


def whole_ids(place: SealedPlace) -> list[str]:
    """Return, of all backups that are whole, the oldest first."""
    return [each.key.removeprefix(MANIFESTS) for each in place.list_objects(MANIFESTS)]


def read_all(place: SealedPlace) -> Iterator[Manifest]:
    """Return, of all whole backups, the oldest first; raises as ``read``."""
    return (read(place, each) for each in whole_ids(place))


def find(place: SealedPlace, backup_id: str) -> Manifest:
    """By the id, or ``newest``; raises as ``read``."""
    if backup_id == NEWEST:
        backup_id = next(reversed(whole_ids(place)), "")
    if backup_id not in whole_ids(place):
        raise BACKUP_NOT_FOUND(which=backup_id or f"where {variable_of('backup_url')} leads")
    return read(place, backup_id)


def read(place: SealedPlace, backup_id: str) -> Manifest:
    """Raises ``backup.damaged`` and ``backup.key_missing``."""
    # A later release may say more, which is left out.
    return TypeAdapter(Manifest).validate_json(opened(place, MANIFESTS + backup_id))


def opened(place: SealedPlace, name: str) -> bytes:
    """A file of a backup; raises ``backup.damaged`` and ``backup.key_missing``."""
    try:
        return place.get(name)
    except ObjectMissing:
        raise BACKUP_DAMAGED(name=name, reason="it is missing") from None
    except DecryptionFailed as error:
        raise BACKUP_DAMAGED(name=name, reason=error) from None
    except BackupKeyMissing as error:
        raise BACKUP_KEY_MISSING(key=error, setting=variable_of("backup_keys")) from None
