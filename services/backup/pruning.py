"""Removing old backups, what kills have left, and copies of objects that no backup names."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, islice

from services.backup import journal, kept_objects, manifests
from services.backup.manifests import MANIFESTS, Manifest
from storage.backup_files.sealed_place import SealedPlace

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
    parts = (each.key for each in place.stored("backups/"))
    needless = [
        (key for key in parts if key.split("/")[1] not in kept_ids),
        _needless_copies(place, kept),
        journal.names_before(place, kept[0].began_at),
    ]
    for names in needless:
        # The names of what goes are read ahead of it, a batch at a time.
        while batch := list(islice(names, _MAX_REMOVED_AT_ONCE)):
            place.remove(*batch)
            done.files += len(batch)
    return done


def _needless_copies(place: SealedPlace, kept: Iterable[Manifest]) -> Iterator[str]:
    """Copies of objects that no kept backup has, read beside the lists of those, in one order."""
    lists = heapq.merge(*(kept_objects.keys_of(place, each) for each in kept))
    needed = (key for key, _ in groupby(lists))
    key = next(needed, None)
    for each in kept_objects.in_order(place.stored(kept_objects.COPIES)):
        own = each.key.removeprefix(kept_objects.COPIES)
        while key is not None and key < own:
            key = next(needed, None)
        if key != own:
            yield each.key
