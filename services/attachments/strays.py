"""Strays: objects that no row names, and rows whose object is gone.

A crash, or a connection that breaks at the wrong moment, may leave an object without a row. A
bucket restored from an older copy may lack an object that a row names. The search through the
converted images reads objects and rows in the order of their names, side by side, so that it needs
little memory for any number.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby, islice
from operator import itemgetter

from sqlalchemy import Select, select

from models import Attachment, AttachmentStatus
from services.attachments import files
from services.attachments.files import MEDIA, ORIGINALS, RENDITIONS
from services.jobs.maintenance import register_maintenance
from storage.resources import Resources

SWEEP_UPLOADS = register_maintenance(
    "maintenance.sweep_uploads",
    every=timedelta(hours=1),
    run=lambda resources, began_at: sweep_uploads(resources, now=began_at),
)
# A younger object or row may be that of a running request or job, which writes the other soon.
STRAY_GRACE = timedelta(hours=1)
_MAX_BATCH_ROWS = 1000
# Few, since a stray is looked at once more right before it goes.
_MAX_REMOVED_AT_ONCE = 100
# The original of a failed one stays for a while, and then has its removal.
_WITH_ORIGINAL = (AttachmentStatus.PROCESSING, AttachmentStatus.FAILED)


class StrayKind(StrEnum):
    OBJECT_WITHOUT_ROW = "object without row"
    ROW_WITHOUT_OBJECT = "row without object"


@dataclass(frozen=True)
class Stray:
    kind: StrayKind
    key: str


def find(resources: Resources, *, now: datetime) -> Iterator[Stray]:
    """Yield every stray that is older than the grace period."""
    before = now - STRAY_GRACE
    for prefix in (MEDIA, RENDITIONS):
        stored = (
            (item.key, item.modified_at < before, StrayKind.OBJECT_WITHOUT_ROW)
            for item in resources.objects.stored(prefix)
        )
        named = _named(resources, prefix, before)
        for key, found in groupby(heapq.merge(stored, named), key=itemgetter(0)):
            (_, is_old, kind), *others = found
            stray = Stray(kind, key)
            # Object and row were read at different moments, so check this one again.
            if is_old and not others and _is_still_stray(resources, stray):
                yield stray
    yield from _stray_originals(resources, before)


def mend(resources: Resources, stray: Stray) -> None:
    """Remove an object that no row names; fail a row without its image, or cut off a rendition."""
    if stray.kind is StrayKind.OBJECT_WITHOUT_ROW:
        resources.objects.remove(stray.key)
        return
    with resources.unit_of_work() as uow:
        row = uow.session.scalar(_row_of(stray.key).with_for_update())
        if row is None:
            return
        if stray.key.startswith(RENDITIONS):
            renditions = {files.key_of_file(row, each): each for each in files.rendition_files(row)}
            renditions.pop(stray.key, None)
            row.renditions = [asdict(each) for each in renditions.values()]
            return
        row.status = AttachmentStatus.FAILED
        row.error = {"code": "attachment.object_missing", "message": "The stored file is gone."}
        if row.renditions is not None:
            # Their objects, which no row names then, are found next.
            row.renditions = []


def sweep_uploads(resources: Resources, *, now: datetime) -> int:
    """Remove originals that no attachment waits for, and return their number.

    A crash leaves them. The cost is that of the originals that are there, whatever the number of
    attachments. Converted images are not looked at: each is named by a row or by its removal from
    before it is written until it is gone.
    """
    removed, strays = 0, _stray_originals(resources, now - STRAY_GRACE)
    while keys := [each.key for each in islice(strays, _MAX_REMOVED_AT_ONCE)]:
        resources.objects.remove(*keys)
        removed += len(keys)
    return removed


def _stray_originals(resources: Resources, before: datetime) -> Iterator[Stray]:
    """An original is there while its upload is processed, and for a while after a failure."""
    stored = resources.objects.stored(ORIGINALS)
    old = (item.key for item in stored if item.modified_at < before)
    while keys := list(islice(old, _MAX_BATCH_ROWS)):
        hash_ids = [key.removeprefix(ORIGINALS) for key in keys]
        named = select(Attachment.hash_id).where(
            Attachment.hash_id.in_(hash_ids), Attachment.status.in_(_WITH_ORIGINAL)
        )
        with resources.unit_of_work() as uow:
            named_keys = {ORIGINALS + hash_id for hash_id in uow.session.scalars(named)}
        for key in keys:
            stray = Stray(StrayKind.OBJECT_WITHOUT_ROW, key)
            # The row may have been written while the keys were read.
            if key not in named_keys and _is_still_stray(resources, stray):
                yield stray


def _is_still_stray(resources: Resources, stray: Stray) -> bool:
    has_object = resources.objects.exists(stray.key)
    with resources.unit_of_work() as uow:
        row = uow.session.scalar(_row_of(stray.key))
        has_row = row is not None and _is_named(row, stray.key)
    is_object = stray.kind is StrayKind.OBJECT_WITHOUT_ROW
    return has_object == is_object and has_row != is_object


def _row_of(key: str) -> Select[Attachment]:
    """The row that may name the object."""
    prefix, _, name = key.partition("/")
    if f"{prefix}/" == MEDIA:
        return select(Attachment).where(Attachment.filename == name)
    return select(Attachment).where(Attachment.hash_id == name.partition("/")[0])


def _is_named(row: Attachment, key: str) -> bool:
    if key.startswith(ORIGINALS):
        return row.status in _WITH_ORIGINAL
    if row.status == AttachmentStatus.PROCESSING:
        # All that its worker may write.
        return key.startswith(tuple(files.keys_of_files(row)))
    return row.status == AttachmentStatus.READY and key in _keys_of(row, key)


def _keys_of(row: Attachment, like: str) -> Sequence[str]:
    """The keys of the ready row's files, of the kind of this one, in the order of their bytes."""
    if like.startswith(MEDIA):
        return [files.media_key(row)]
    return sorted(files.key_of_file(row, each) for each in files.rendition_files(row))


def _named(
    resources: Resources, prefix: str, before: datetime
) -> Iterator[tuple[str, bool, StrayKind]]:
    """Yield the keys with this prefix that rows name, in the bucket's order of keys.

    With each is told whether its object must exist, since the row is old enough. A row names its
    converted image from the start, which must exist once the row is ready, and its renditions then.
    """
    last = ""
    query = select(Attachment).order_by(Attachment.hash_id).limit(_MAX_BATCH_ROWS)
    if prefix == RENDITIONS:
        query = query.where(Attachment.renditions.is_not(None))
    while True:
        with resources.unit_of_work() as uow:
            batch = uow.session.scalars(query.where(Attachment.hash_id > last)).all()
        for row in batch:
            if row.status in (AttachmentStatus.READY, AttachmentStatus.PROCESSING):
                is_required = row.status == AttachmentStatus.READY and row.updated_at < before
                for key in _keys_of(row, prefix):
                    yield key, is_required, StrayKind.ROW_WITHOUT_OBJECT
        if len(batch) < _MAX_BATCH_ROWS:
            return
        last = batch[-1].hash_id
