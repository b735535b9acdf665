"""Creates backups, and removes expired backups.

Only one backup can be created at a time, either by maintenance or by the operator's command.
"""

import heapq
import itertools
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, islice

from core import clock
from core.errors.jobs import BACKUP_TOOL_FAILED
from services import removals
from services.backup import journal, manifests
from services.backup.manifests import MANIFESTS, Manifest, backup_folder, read_file
from services.jobs import maintenance
from services.jobs.maintenance import register_maintenance
from storage.backup_files import postgres_tools
from storage.backup_files.places import SealedPlace, open_sealed_place, retry_transient_errors
from storage.backup_files.postgres_tools import PostgresToolFailed
from storage.migrations import revisions
from storage.objects import ObjectMissing, ObjectStore, StoredObject
from storage.resources import Resources

# The folder of the backup storage that contains the objects of all backups.
COPIES = "objects/"
PIECE_BYTES = 4 * 1024 * 1024
# The folder of the bucket into which a verification restores the objects of a backup.
TRIAL = "backup-trial/"
_MAX_LIST_KEYS = 10_000
# The number of threads is limited, because each thread may hold an object of 8 MiB in memory.
_MAX_THREADS = 4
_MAX_REMOVAL_FILES = 100
# The next backup copies an object again if the object was younger than ``_MIN_AGE_AT_COPY`` when it
# was copied. Without this margin, an outdated copy could look newer than the object if the clocks
# of the bucket and the backup storage differ.
_MIN_AGE_AT_COPY = timedelta(hours=1)
# How often maintenance checks whether a backup is due.
_CHECK_INTERVAL = timedelta(hours=1)


@dataclass
class CopyResult:
    """The objects of a new backup.

    Attributes:
        lists: the number of files that list the keys.
        copied: the number of objects that weren't in an earlier backup.
    """

    lists: int = 0
    objects: int = 0
    copied: int = 0


@dataclass
class PruneResult:
    backups: int = 0
    files: int = 0


def copy_objects(
    objects: ObjectStore, place: SealedPlace, backup_id: str, *, excluded_prefix: str
) -> CopyResult:
    result = CopyResult()
    entries = _list_objects(objects, place, excluded_prefix=excluded_prefix)

    def copy_object(entry: tuple[str, bool]) -> bool:
        """Copy an object that lacks a usable copy.

        Return false if the object has disappeared since it was listed.
        """
        key, is_copied = entry
        if not is_copied:
            try:
                place.put(COPIES + key, retry_transient_errors(lambda: objects.get(key)))
            except ObjectMissing:
                return False
        return True

    with _threads() as threads:
        while batch := list(islice(entries, _MAX_LIST_KEYS)):
            exist = threads.map(copy_object, batch)
            keys = [key for (key, _), exists in zip(batch, exist, strict=True) if exists]
            result.copied += len(keys) - sum(is_copied for _, is_copied in batch)
            result.objects += len(keys)
            if keys:
                place.put(_list_name(backup_id, result.lists), "\n".join(keys).encode())
                result.lists += 1
    return result


def _list_objects(
    objects: ObjectStore, place: SealedPlace, *, excluded_prefix: str
) -> Iterator[tuple[str, bool]]:
    """Yield the key of each object in the bucket, and whether a usable copy of the object exists.

    Bucket and backup storage both list objects by key, so they can be compared without loading all
    keys into memory.
    """
    copies = require_key_order(place.list_objects(COPIES))
    copy = next(copies, None)
    for stored in require_key_order(objects.list_objects()):
        if stored.key.startswith(excluded_prefix):
            continue
        name = COPIES + stored.key
        while copy is not None and copy.key < name:
            copy = next(copies, None)
        is_copied = copy is not None and copy.key == name
        is_usable = copy is not None and copy.modified_at >= stored.modified_at + _MIN_AGE_AT_COPY
        yield stored.key, is_copied and is_usable


@contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """Provide a thread pool for a ``with`` block, and cancel queued calls when the block ends."""
    threads = ThreadPoolExecutor(_MAX_THREADS)
    try:
        yield threads
    finally:
        threads.shutdown(cancel_futures=True)


def list_keys(place: SealedPlace, manifest: Manifest) -> Iterator[str]:
    """Yield the keys of all objects in a backup, in ascending order."""
    for number in range(manifest.object_lists):
        yield from read_file(place, _list_name(manifest.id, number)).decode().split("\n")


def restore_objects(objects: ObjectStore, place: SealedPlace, manifest: Manifest) -> int:
    restored_objects = 0
    keys = list_keys(place, manifest)

    def restore_object(key: str) -> bool:
        if retry_transient_errors(lambda: objects.exists(key)):
            return False
        data = read_file(place, COPIES + key)
        retry_transient_errors(lambda: objects.put(key, data, "application/octet-stream"))
        return True

    with _threads() as threads:
        while batch := list(islice(keys, _MAX_LIST_KEYS)):
            restored_objects += sum(threads.map(restore_object, batch))
    return restored_objects


def _list_name(backup_id: str, number: int) -> str:
    return f"{backup_folder(backup_id)}objects/{number:06}"


def require_key_order(stored_objects: Iterable[StoredObject]) -> Iterator[StoredObject]:
    """Yield the objects, or raise ``RuntimeError`` if their keys aren't in ascending order."""
    last_key = ""
    for stored in stored_objects:
        if stored.key <= last_key:
            raise RuntimeError("the object storage doesn't list keys in sorted order")
        last_key = stored.key
        yield stored


def prune_backups(place: SealedPlace, before: datetime) -> PruneResult:
    """Remove all backups that began before ``before``, except the newest backup.

    Call this only during a run of ``CREATE_BACKUP``, so that no backup is created at the same time.
    """
    all_manifests = list(manifests.read_manifests(place))
    if not all_manifests:
        return PruneResult()
    expired = [manifest for manifest in all_manifests[:-1] if manifest.began_at < before]
    remaining = [manifest for manifest in all_manifests if manifest not in expired]
    # Remove the manifests first, so that partly removed backups are ignored.
    place.remove(*[MANIFESTS + manifest.id for manifest in expired])
    result = PruneResult(backups=len(expired), files=len(expired))
    remaining_ids = {manifest.id for manifest in remaining}
    backup_files = (stored.key for stored in place.list_objects("backups/"))
    unneeded_files = [
        (key for key in backup_files if key.split("/")[1] not in remaining_ids),
        _list_unneeded_copies(place, remaining),
        journal.list_files(place, remaining[0].began_at, needed=False),
    ]
    for names in unneeded_files:
        # Read a batch of names before removing the files, because a folder shouldn't change while
        # it is being listed.
        while batch := list(islice(names, _MAX_REMOVAL_FILES)):
            place.remove(*batch)
            result.files += len(batch)
    return result


def _list_unneeded_copies(place: SealedPlace, remaining: Iterable[Manifest]) -> Iterator[str]:
    """Yield copies that no backup needs, by merging the sorted lists without loading them."""
    key_lists = heapq.merge(*(list_keys(place, manifest) for manifest in remaining))
    needed_keys = (key for key, _ in groupby(key_lists))
    needed_key = next(needed_keys, None)
    for copy in require_key_order(place.list_objects(COPIES)):
        key = copy.key.removeprefix(COPIES)
        while needed_key is not None and needed_key < key:
            needed_key = next(needed_keys, None)
        if needed_key != key:
            yield copy.key


def create_backup_if_due(resources: Resources, began_at: datetime) -> int | None:
    """Create a backup if one is due, and remove expired backups.

    Return 1 if a backup was created, 0 if no backup was due, or ``None`` if backups are disabled.
    """
    settings = resources.settings
    if settings.backup_url is None or not settings.backup_hours:
        return None
    place = open_sealed_place(settings)
    # Start a backup up to half a check interval early, because daily backups would otherwise begin
    # later every day.
    due_at = began_at - timedelta(hours=settings.backup_hours) + _CHECK_INTERVAL / 2
    due_timestamp = manifests.format_timestamp(due_at)
    if any(backup_id > due_timestamp for backup_id in manifests.list_backup_ids(place)):
        return 0
    create_backup(resources, place, began_at)
    prune_backups(place, began_at - timedelta(days=settings.backup_days))
    return 1


CREATE_BACKUP = register_maintenance(
    removals.BLOCKING_TASK,
    every=_CHECK_INTERVAL,
    max_run=timedelta(days=1),
    max_failure_pause=timedelta(minutes=15),
    run=create_backup_if_due,
)


def create_backup(resources: Resources, place: SealedPlace, began_at: datetime) -> Manifest:
    """Create a backup. Call this only during a run of ``CREATE_BACKUP`` that began at ``began_at``.

    Raises ``LeaseLost`` if a second maintenance run has started, which may have removed objects
    that the new backup needs. An incomplete backup has no manifest and is therefore ignored.
    """
    settings = resources.settings
    backup_id = manifests.create_backup_id(began_at)
    place.note_key()
    [revision] = revisions.read_revisions(resources.database)
    pieces = 0
    size = 0
    try:
        database = settings.backup_database_url or settings.database_url
        with closing(postgres_tools.dump(database)) as output:
            for piece in _split_into_pieces(output):
                place.put(piece_name(backup_id, pieces), piece)
                pieces += 1
                size += len(piece)
    except PostgresToolFailed as error:
        raise BACKUP_TOOL_FAILED(reason=error) from None
    copies = copy_objects(resources.objects, place, backup_id, excluded_prefix=TRIAL)
    manifest = Manifest(
        id=backup_id,
        began_at=began_at,
        finished_at=clock.now(),
        release=manifests.current_release(),
        revision=revision,
        database_pieces=pieces,
        database_bytes=size,
        object_lists=copies.lists,
        objects=copies.objects,
        copied=copies.copied,
        secret_keys=manifests.fingerprint_keys(settings.keyring),
        encryption_keys=manifests.fingerprint_keys(settings.encryption_keyring),
    )
    with resources.unit_of_work() as uow:
        maintenance.require_run(uow, CREATE_BACKUP, began_at)
    manifests.write_manifest(place, manifest)
    return manifest


def piece_name(backup_id: str, number: int) -> str:
    return f"{manifests.backup_folder(backup_id)}database/{number:06}"


def _split_into_pieces(output: Iterable[bytes]) -> Iterator[bytes]:
    buffer = bytearray()
    # An empty chunk marks the end of the dump.
    for chunk in itertools.chain(output, [b""]):
        buffer += chunk
        while len(buffer) >= PIECE_BYTES or (buffer and not chunk):
            yield bytes(buffer[:PIECE_BYTES])
            del buffer[:PIECE_BYTES]
