"""The objects of a backup: their keys in lists, and a copy of each that all backups share."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice

from services.backup.manifests import Manifest, folder, opened
from storage.backup_files.sealed_place import SealedPlace, patiently
from storage.objects import ObjectMissing, ObjectStore, StoredObject

COPIES = "objects/"
_MAX_LIST_KEYS = 10_000
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
    done = Copied()
    keys = _copied(objects, place, done, but=but)
    while batch := list(islice(keys, _MAX_LIST_KEYS)):
        place.put(_list_name(backup_id, done.lists), "\n".join(batch).encode())
        done.lists += 1
    return done


def _copied(objects: ObjectStore, place: SealedPlace, done: Copied, *, but: str) -> Iterator[str]:
    copies = in_order(place.stored(COPIES))
    copy = next(copies, None)
    for each in in_order(objects.stored()):
        if each.key.startswith(but):
            continue
        name = COPIES + each.key
        while copy is not None and copy.key < name:
            copy = next(copies, None)
        is_there = copy is not None and copy.key == name
        if not is_there or copy.modified_at < each.modified_at + _SETTLED_AFTER:
            try:
                place.put(name, patiently(lambda key=each.key: objects.get(key)))
            except ObjectMissing:
                # A sweep removed it, which no row named.
                continue
            done.copied += 1
        done.objects += 1
        yield each.key


def keys_of(place: SealedPlace, manifest: Manifest) -> Iterator[str]:
    """The keys of the backup's objects, in order; raises ``backup.damaged``."""
    for number in range(manifest.object_lists):
        yield from opened(place, _list_name(manifest.id, number)).decode().split("\n")


def put_back(objects: ObjectStore, place: SealedPlace, manifest: Manifest) -> int:
    """Put each object that is missing into the bucket; how many. Raises ``backup.damaged``."""
    put = 0
    for key in keys_of(place, manifest):
        if not patiently(lambda key=key: objects.exists(key)):
            data = opened(place, COPIES + key)
            patiently(lambda key=key, data=data: objects.put(key, data, "application/octet-stream"))
            put += 1
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
