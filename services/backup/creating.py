"""Making a backup: by maintenance, or by the operator's command. Only one is made at a time."""

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
from services.backup.manifests import MANIFESTS, Manifest, folder, opened
from services.jobs import maintenance
from services.jobs.maintenance import register_maintenance
from storage.backup_files import postgres_tools
from storage.backup_files.places import SealedPlace, open_sealed_place, retry_transient_errors
from storage.backup_files.postgres_tools import PostgresToolFailed
from storage.migrations import revisions
from storage.objects import ObjectMissing, ObjectStore, StoredObject
from storage.resources import Resources

COPIES = "objects/"
_MAX_LIST_KEYS = 10_000
# Each waits for two storages most of the time, and may hold an object of 8 MiB.
_MAX_AT_ONCE = 4
# An object that was written so shortly before its copy, by the clocks of two storages, may have
# been under way: a worker that does its work again writes it again.
_SETTLED_AFTER = timedelta(hours=1)


@dataclass
class Copied:
    """The number of lists and objects that a backup copied.

    Attributes:
        copied: how many of the objects no earlier backup had.
    """

    lists: int = 0
    objects: int = 0
    copied: int = 0


def copy_all(objects: ObjectStore, place: SealedPlace, backup_id: str, *, but: str) -> Copied:
    """Copy each object that has no copy, and list all, without those that begin with ``but``."""
    done, found = Copied(), _found(objects, place, but=but)

    def copy(each: tuple[str, bool]) -> bool:
        """False: there is no such object any more; a sweep removed it, which no row named."""
        key, is_copied = each
        if not is_copied:
            try:
                place.put(COPIES + key, retry_transient_errors(lambda: objects.get(key)))
            except ObjectMissing:
                return False
        return True

    with _threads() as threads:
        while batch := list(islice(found, _MAX_LIST_KEYS)):
            there = threads.map(copy, batch)
            keys = [key for (key, _), is_there in zip(batch, there, strict=True) if is_there]
            done.copied += len(keys) - sum(is_copied for _, is_copied in batch)
            done.objects += len(keys)
            if keys:
                place.put(_list_name(backup_id, done.lists), "\n".join(keys).encode())
                done.lists += 1
    return done


def _found(objects: ObjectStore, place: SealedPlace, *, but: str) -> Iterator[tuple[str, bool]]:
    """The bucket's objects and whether each is copied, read beside the copies in one order."""
    copies = in_order(place.list_objects(COPIES))
    copy = next(copies, None)
    for each in in_order(objects.list_objects()):
        if each.key.startswith(but):
            continue
        name = COPIES + each.key
        while copy is not None and copy.key < name:
            copy = next(copies, None)
        is_copied = copy is not None and copy.key == name
        is_settled = copy is not None and copy.modified_at >= each.modified_at + _SETTLED_AFTER
        yield each.key, is_copied and is_settled


@contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """Threads that begin nothing more once the block has failed."""
    threads = ThreadPoolExecutor(_MAX_AT_ONCE)
    try:
        yield threads
    finally:
        threads.shutdown(cancel_futures=True)


def keys_of(place: SealedPlace, manifest: Manifest) -> Iterator[str]:
    """The keys of the backup's objects, in order; raises ``backup.damaged``."""
    for number in range(manifest.object_lists):
        yield from opened(place, _list_name(manifest.id, number)).decode().split("\n")


def put_back(objects: ObjectStore, place: SealedPlace, manifest: Manifest) -> int:
    """Put each object that is missing into the bucket; how many. Raises ``backup.damaged``."""
    put, keys = 0, keys_of(place, manifest)

    def put_one(key: str) -> bool:
        if retry_transient_errors(lambda: objects.exists(key)):
            return False
        data = opened(place, COPIES + key)
        retry_transient_errors(lambda: objects.put(key, data, "application/octet-stream"))
        return True

    with _threads() as threads:
        while batch := list(islice(keys, _MAX_LIST_KEYS)):
            put += sum(threads.map(put_one, batch))
    return put


def _list_name(backup_id: str, number: int) -> str:
    return f"{folder(backup_id)}objects/{number:06}"


def in_order(found: Iterable[StoredObject]) -> Iterator[StoredObject]:
    """The same; raises where a storage does not keep the order that a comparison needs."""
    last = ""
    for each in found:
        if each.key <= last:
            raise RuntimeError("the storage lists keys in an order of its own")
        last = each.key
        yield each


_MAX_REMOVED_AT_ONCE = 100


@dataclass
class Pruned:
    backups: int = 0
    files: int = 0


def prune(place: SealedPlace, before: datetime) -> Pruned:
    """Remove what began before; the newest backup stays, whenever it began.

    Call it as the work of ``creating.MAKE_BACKUP``, so that no backup is made meanwhile. Raises
    ``backup.damaged`` and ``backup.key_missing`` for a backup that can't be read: what it needs is
    not known.
    """
    everything = list(manifests.read_all(place))
    if not everything:
        return Pruned()
    old = [each for each in everything[:-1] if each.began_at < before]
    kept = [each for each in everything if each not in old]
    # The manifest first: a backup whose removal is broken off is none.
    place.remove(*[MANIFESTS + each.id for each in old])
    done = Pruned(backups=len(old), files=len(old))
    kept_ids = {each.id for each in kept}
    parts = (each.key for each in place.list_objects("backups/"))
    needless = [
        (key for key in parts if key.split("/")[1] not in kept_ids),
        _needless_copies(place, kept),
        journal.names(place, kept[0].began_at, needed=False),
    ]
    for names in needless:
        # The names of what goes are read ahead of it, a batch at a time.
        while batch := list(islice(names, _MAX_REMOVED_AT_ONCE)):
            place.remove(*batch)
            done.files += len(batch)
    return done


def _needless_copies(place: SealedPlace, kept: Iterable[Manifest]) -> Iterator[str]:
    """Copies of objects that no kept backup has, read beside the lists of those, in one order."""
    lists = heapq.merge(*(keys_of(place, each) for each in kept))
    needed = (key for key, _ in groupby(lists))
    key = next(needed, None)
    for each in in_order(place.list_objects(COPIES)):
        own = each.key.removeprefix(COPIES)
        while key is not None and key < own:
            key = next(needed, None)
        if key != own:
            yield each.key


# The maintenance looks each hour whether it is time.
_LOOKS_EVERY = timedelta(hours=1)
PIECE_BYTES = 4 * 1024 * 1024
# Under which a backup is restored to be verified, in the bucket itself.
TRIAL = "backup-trial/"


def make_if_due(resources: Resources, began_at: datetime) -> int | None:
    """Make a backup if the newest is old, and prune old ones; how many were made."""
    settings = resources.settings
    if settings.backup_url is None or not settings.backup_hours:
        return None
    place = open_sealed_place(settings)
    # Half a round early rather than half a round late: a backup a day stays at its hour.
    due_at = began_at - timedelta(hours=settings.backup_hours) + _LOOKS_EVERY / 2
    if any(each > manifests.stamp(due_at) for each in manifests.whole_ids(place)):
        return 0
    create(resources, place, began_at)
    prune(place, began_at - timedelta(days=settings.backup_days))
    return 1


MAKE_BACKUP = register_maintenance(
    removals.HELD_BACK_BY,
    every=_LOOKS_EVERY,
    max_run=timedelta(days=1),
    max_failure_pause=timedelta(minutes=15),
    run=make_if_due,
)


def create(resources: Resources, place: SealedPlace, began_at: datetime) -> Manifest:
    """Make a backup. Call it as the work of ``MAKE_BACKUP``, which began then.

    Raises ``LeaseLost`` if another run has begun meanwhile: it may have pruned what this one counts
    on. Then, and after each other failure, there is no backup.
    """
    settings = resources.settings
    backup_id = manifests.new_id(began_at)
    [revision] = revisions.read_revisions(resources.database)
    pieces = size = 0
    try:
        database = settings.backup_database_url or settings.database_url
        with closing(postgres_tools.dump(database)) as output:
            for piece in _in_pieces(output):
                place.put(piece_name(backup_id, pieces), piece)
                pieces += 1
                size += len(piece)
    except PostgresToolFailed as error:
        raise BACKUP_TOOL_FAILED(reason=error) from None
    kept = copy_all(resources.objects, place, backup_id, but=TRIAL)
    manifest = Manifest(
        id=backup_id,
        began_at=began_at,
        finished_at=clock.now(),
        release=manifests.release(),
        revision=revision,
        database_pieces=pieces,
        database_bytes=size,
        object_lists=kept.lists,
        objects=kept.objects,
        copied=kept.copied,
        secret_keys=manifests.fingerprints(settings.keyring),
        encryption_keys=manifests.fingerprints(settings.encryption_keyring),
    )
    with resources.unit_of_work() as uow:
        maintenance.require_run(uow, MAKE_BACKUP, began_at)
    manifests.write(place, manifest)
    return manifest


def piece_name(backup_id: str, number: int) -> str:
    return f"{manifests.folder(backup_id)}database/{number:06}"


def _in_pieces(output: Iterable[bytes]) -> Iterator[bytes]:
    """Cut the output into pieces of ``PIECE_BYTES`` bytes; the last piece may be shorter."""
    held = bytearray()
    for read in itertools.chain(output, [b""]):
        held += read
        while len(held) >= PIECE_BYTES or (held and not read):
            yield bytes(held[:PIECE_BYTES])
            del held[:PIECE_BYTES]
