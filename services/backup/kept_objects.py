"""The objects of a backup: their keys in lists, and a copy of each that all backups share."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice

from services.backup.manifests import Manifest, folder, opened
from storage.backup_files.sealed_place import SealedPlace, patiently
from storage.objects import ObjectMissing, ObjectStore, StoredObject

COPIES = "objects/"
_MAX_LIST_KEYS = 10_000
# Each waits for two storages most of the time, and may hold an object of 8 MiB.
_MAX_AT_ONCE = 4
# An object that was written so shortly before its copy, by the clocks of two storages, may have
# been under way: a worker that does its work again writes it again.
_SETTLED_AFTER = timedelta(hours=1)


@dataclass
class Copied:
    """
    Attributes:
        copied: how many of the objects no earlier backup had.
    """

    lists: int = 0
    objects: int = 0
    copied: int = 0


def copy_all(objects: ObjectStore, place: SealedPlace, backup_id: str, *, but: str) -> Copied:
    """Copy each object that has no copy, and list all, without those that begin with ``but``."""
    done, found = Copied(), _found(objects, place, but=but)
    with _threads() as threads:
        while batch := list(islice(found, _MAX_LIST_KEYS)):
            there = threads.map(partial(_copy, objects, place), batch)
            keys = [each.key for each, is_there in zip(batch, there, strict=True) if is_there]
            done.copied += len(keys) - sum(each.is_copied for each in batch)
            done.objects += len(keys)
            if keys:
                place.put(_list_name(backup_id, done.lists), "\n".join(keys).encode())
                done.lists += 1
    return done


@dataclass(frozen=True)
class _Found:
    key: str
    is_copied: bool


def _found(objects: ObjectStore, place: SealedPlace, *, but: str) -> Iterator[_Found]:
    """The objects of the bucket, read beside their copies, in one order."""
    copies = in_order(place.stored(COPIES))
    copy = next(copies, None)
    for each in in_order(objects.stored()):
        if each.key.startswith(but):
            continue
        name = COPIES + each.key
        while copy is not None and copy.key < name:
            copy = next(copies, None)
        is_copied = copy is not None and copy.key == name
        is_settled = copy is not None and copy.modified_at >= each.modified_at + _SETTLED_AFTER
        yield _Found(each.key, is_copied and is_settled)


def _copy(objects: ObjectStore, place: SealedPlace, found: _Found) -> bool:
    """False: there is no such object any more; a sweep removed it, which no row named."""
    if not found.is_copied:
        try:
            place.put(COPIES + found.key, patiently(lambda: objects.get(found.key)))
        except ObjectMissing:
            return False
    return True


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
    with _threads() as threads:
        while batch := list(islice(keys, _MAX_LIST_KEYS)):
            put += sum(threads.map(partial(_put_back, objects, place), batch))
    return put


def _put_back(objects: ObjectStore, place: SealedPlace, key: str) -> bool:
    if patiently(lambda: objects.exists(key)):
        return False
    data = opened(place, COPIES + key)
    patiently(lambda: objects.put(key, data, "application/octet-stream"))
    return True


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
