"""Making a backup: by upkeep, or by the operator's command. One is made at a time."""

import itertools
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta

from core import clock
from core.lanes import Lane
from core.refusals.jobs import BACKUP_TOOL_FAILED
from services import removals
from services.backup import kept_objects, manifests, pruning
from services.backup.manifests import Manifest
from services.jobs import upkeep
from storage.backup_files import postgres_tools
from storage.backup_files.postgres_tools import PostgresToolFailed
from storage.backup_files.sealed_place import SealedPlace, open_sealed_place
from storage.migrations import revisions
from storage.resources import Resources

# The upkeep looks each hour whether it is time.
_LOOKS_EVERY = timedelta(hours=1)
MAKE_BACKUP = upkeep.register(
    upkeep.UpkeepKind(
        removals.HELD_BACK_BY,
        every=_LOOKS_EVERY,
        lane=Lane.UPKEEP,
        max_run=timedelta(days=1),
        max_failure_pause=timedelta(minutes=15),
    )
)
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
    pruning.prune(place, began_at - timedelta(days=settings.backup_days))
    return 1


def create(resources: Resources, place: SealedPlace, began_at: datetime) -> Manifest:
    """Make a backup. Call it as the work of ``MAKE_BACKUP``, which began then.

    Raises ``LeaseLost`` if another run has begun meanwhile: it may have pruned what this one counts
    on. Then, and after each other failure, there is no backup.
    """
    settings = resources.settings
    backup_id = manifests.new_id(began_at)
    [revision] = revisions.applied(resources.database)
    dumped = _dump(resources, place, backup_id)
    kept = kept_objects.copy_all(resources.objects, place, backup_id, but=TRIAL)
    manifest = Manifest(
        id=backup_id,
        began_at=began_at,
        finished_at=clock.now(),
        release=manifests.release(),
        revision=revision,
        database_pieces=dumped.pieces,
        database_bytes=dumped.size,
        object_lists=kept.lists,
        objects=kept.objects,
        copied=kept.copied,
        secret_keys=manifests.fingerprints(settings.keyring),
        encryption_keys=manifests.fingerprints(settings.encryption_keyring),
    )
    with resources.unit_of_work() as uow:
        upkeep.require_hold(uow, MAKE_BACKUP, began_at)
    manifests.write(place, manifest)
    return manifest


@dataclass
class _Dumped:
    pieces: int = 0
    size: int = 0


def _dump(resources: Resources, place: SealedPlace, backup_id: str) -> _Dumped:
    settings, done = resources.settings, _Dumped()
    try:
        database = settings.backup_database_url or settings.database_url
        with closing(postgres_tools.dump(database)) as output:
            for number, piece in enumerate(_in_pieces(output)):
                place.put(piece_name(backup_id, number), piece)
                done.pieces += 1
                done.size += len(piece)
    except PostgresToolFailed as error:
        raise BACKUP_TOOL_FAILED(reason=error) from None
    return done


def piece_name(backup_id: str, number: int) -> str:
    return f"{manifests.folder(backup_id)}database/{number:06}"


def _in_pieces(output: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, in pieces of ``PIECE_BYTES``, the last one shorter."""
    held = bytearray()
    for read in itertools.chain(output, [b""]):
        held += read
        while len(held) >= PIECE_BYTES or (held and not read):
            yield bytes(held[:PIECE_BYTES])
            del held[:PIECE_BYTES]
