"""Strays: objects that no row names, and rows whose object is missing.

A crash, or a connection that breaks at the wrong moment, may leave an object without a row. A
bucket that is restored from an older copy may lack an object that a row names. The search reads
objects and rows in the order of their keys and merges them, so it needs little memory.
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
# A younger object or row may belong to a running request or job, which has yet to write the other.
STRAY_GRACE = timedelta(hours=1)
_MAX_BATCH_ROWS = 1000
# The batch is small because each stray is checked again just before its removal.
_MAX_REMOVED_AT_ONCE = 100
# The original of a failed upload stays for a while, and its removal is scheduled.
_WITH_ORIGINAL = (AttachmentStatus.PROCESSING, AttachmentStatus.FAILED)


class StrayKind(StrEnum):
    OBJECT_WITHOUT_ROW = "object without row"
    ROW_WITHOUT_OBJECT = "row without object"


@dataclass(frozen=True)
class Stray:
    kind: StrayKind
    key: str


def find_strays(resources: Resources, *, now: datetime) -> Iterator[Stray]:
    """Yield every stray that is older than the grace period."""
    before = now - STRAY_GRACE
    for prefix in (MEDIA, RENDITIONS):
        stored = (
            (item.key, item.modified_at < before, StrayKind.OBJECT_WITHOUT_ROW)
            for item in resources.objects.list_objects(prefix)
        )
        named = _named(resources, prefix, before)
        for key, entries in groupby(heapq.merge(stored, named), key=itemgetter(0)):
            (_, is_old, kind), *others = entries
            stray = Stray(kind, key)
            # Object and row were read at different moments, so check this one again.
            if is_old and not others and _is_still_stray(resources, stray):
                yield stray
    yield from _stray_originals(resources, before)


def mend_stray(resources: Resources, stray: Stray) -> None:
    """Remove an object without a row, or fail or shorten a row without its object."""
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
            # The search then finds the objects of the renditions, because no row names them.
            row.renditions = []


def sweep_uploads(resources: Resources, *, now: datetime) -> int:
    """Remove originals that a crash left behind, and return their number.

    The cost depends on the number of originals, not on the number of attachments. Converted images
    can't be left behind: a row or a scheduled removal names each of them at all times.
    """
    removed = 0
    strays = _stray_originals(resources, now - STRAY_GRACE)
    while keys := [each.key for each in islice(strays, _MAX_REMOVED_AT_ONCE)]:
        resources.objects.remove(*keys)
        removed += len(keys)
    return removed


def _stray_originals(resources: Resources, before: datetime) -> Iterator[Stray]:
    """Yield the originals whose upload is neither being processed nor failed recently."""
    stored = resources.objects.list_objects(ORIGINALS)
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
            # The row may have been written after the query.
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
    """The query of the row that may name the object."""
    prefix, _, name = key.partition("/")
    if f"{prefix}/" == MEDIA:
        return select(Attachment).where(Attachment.filename == name)
    return select(Attachment).where(Attachment.hash_id == name.partition("/")[0])


def _is_named(row: Attachment, key: str) -> bool:
    if key.startswith(ORIGINALS):
        return row.status in _WITH_ORIGINAL
    if row.status == AttachmentStatus.PROCESSING:
        # The worker may have written any of these files.
        return key.startswith(tuple(files.keys_of_files(row)))
    return row.status == AttachmentStatus.READY and key in _keys_of(row, key)


def _keys_of(row: Attachment, like: str) -> Sequence[str]:
    """Return the keys of the ready row's files in the same folder as ``like``, sorted."""
    if like.startswith(MEDIA):
        return [files.media_key(row)]
    return sorted(files.key_of_file(row, each) for each in files.rendition_files(row))


def _named(
    resources: Resources, prefix: str, before: datetime
) -> Iterator[tuple[str, bool, StrayKind]]:
    """Yield the keys with this prefix that rows name, in the bucket's order of keys.

    The second value says whether the object must exist. The row names its converted image from the
    start, but the image and the renditions must exist only once the row is ready and old enough.
    """
    last_hash_id = ""
    query = select(Attachment).order_by(Attachment.hash_id).limit(_MAX_BATCH_ROWS)
    if prefix == RENDITIONS:
        query = query.where(Attachment.renditions.is_not(None))
    while True:
        with resources.unit_of_work() as uow:
            batch = uow.session.scalars(query.where(Attachment.hash_id > last_hash_id)).all()
        for row in batch:
            if row.status in (AttachmentStatus.READY, AttachmentStatus.PROCESSING):
                is_required = row.status == AttachmentStatus.READY and row.updated_at < before
                for key in _keys_of(row, prefix):
                    yield key, is_required, StrayKind.ROW_WITHOUT_OBJECT
        if len(batch) < _MAX_BATCH_ROWS:
            return
        last_hash_id = batch[-1].hash_id
