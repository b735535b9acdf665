"""Finds and repairs mismatches between objects in the object storage and rows in the database.

A crash can leave an object without a row. After a restore from a backup, the objects of some rows
may be missing. To save memory, the search for these strays reads the keys of objects and rows in
sorted order, and compares them one by one.
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
from services.attachments.files import MEDIA_PREFIX, ORIGINALS_PREFIX, RENDITIONS_PREFIX
from services.jobs.maintenance import register_maintenance
from storage.resources import Resources

SWEEP_UPLOADS = register_maintenance(
    "maintenance.sweep_uploads",
    every=timedelta(hours=1),
    run=lambda resources, began_at: sweep_uploads(resources, now=began_at),
)
# Objects and rows that are younger than this aren't strays, because their counterparts may not have
# been written yet.
STRAY_GRACE_PERIOD = timedelta(hours=1)
_MAX_BATCH_ROWS = 1000
# Objects are removed in small batches, so that each object is checked again shortly before its
# removal.
_MAX_BATCH_REMOVALS = 100
# The statuses in which the original of an attachment can exist in the object storage. After a
# failed conversion, the original is kept for a while, so that the owner can retry the conversion.
_STATUSES_WITH_ORIGINAL = (AttachmentStatus.PROCESSING, AttachmentStatus.FAILED)


class StrayKind(StrEnum):
    OBJECT_WITHOUT_ROW = "object without row"
    ROW_WITHOUT_OBJECT = "row without object"


@dataclass(frozen=True)
class Stray:
    kind: StrayKind
    key: str


def find_strays(resources: Resources, *, now: datetime) -> Iterator[Stray]:
    before = now - STRAY_GRACE_PERIOD
    for prefix in (MEDIA_PREFIX, RENDITIONS_PREFIX):
        stored = (
            (item.key, item.modified_at < before, StrayKind.OBJECT_WITHOUT_ROW)
            for item in resources.objects.list_objects(prefix)
        )
        referenced = _iterate_referenced_keys(resources, prefix, before)
        for key, entries in groupby(heapq.merge(stored, referenced), key=itemgetter(0)):
            (_, is_overdue, kind), *counterparts = entries
            stray = Stray(kind, key)
            # Check again whether the object or row is stray, because objects and rows were read at
            # different times.
            if is_overdue and not counterparts and _is_still_stray(resources, stray):
                yield stray
    yield from _find_stray_originals(resources, before)


def repair_stray(resources: Resources, stray: Stray) -> None:
    """Remove an object without a row, or correct a row whose object is missing.

    An attachment whose converted image is missing is marked as failed. A missing rendition is
    removed from the attachment's row.
    """
    if stray.kind is StrayKind.OBJECT_WITHOUT_ROW:
        resources.objects.remove(stray.key)
        return
    with resources.unit_of_work() as uow:
        row = uow.session.scalar(_select_row(stray.key).with_for_update())
        if row is None:
            return
        if stray.key.startswith(RENDITIONS_PREFIX):
            renditions = {
                files.get_file_key(row, rendition): rendition
                for rendition in files.list_renditions(row)
            }
            renditions.pop(stray.key, None)
            row.renditions = [asdict(rendition) for rendition in renditions.values()]
            return
        row.status = AttachmentStatus.FAILED
        row.error = {
            "code": "attachment.object_missing",
            "message": ("The stored file no longer exists."),
        }
        if row.renditions is not None:
            # Clear the list of renditions, so that ``repair_stray`` can remove the objects of the
            # renditions.
            row.renditions = []


def sweep_uploads(resources: Resources, *, now: datetime) -> int:
    """Remove the original files of uploads that a crash left in the object storage.

    The cost of a sweep depends on the number of stored originals, not of attachments. The sweep
    ignores converted images, because each has either a row or a scheduled removal.
    """
    removed = 0
    strays = _find_stray_originals(resources, now - STRAY_GRACE_PERIOD)
    while keys := [stray.key for stray in islice(strays, _MAX_BATCH_REMOVALS)]:
        resources.objects.remove(*keys)
        removed += len(keys)
    return removed


def _find_stray_originals(resources: Resources, before: datetime) -> Iterator[Stray]:
    """Yield originals that were stored before ``before`` and that no conversion needs."""
    stored = resources.objects.list_objects(ORIGINALS_PREFIX)
    old_keys = (item.key for item in stored if item.modified_at < before)
    while keys := list(islice(old_keys, _MAX_BATCH_ROWS)):
        hash_ids = [key.removeprefix(ORIGINALS_PREFIX) for key in keys]
        query = select(Attachment.hash_id).where(
            Attachment.hash_id.in_(hash_ids), Attachment.status.in_(_STATUSES_WITH_ORIGINAL)
        )
        with resources.unit_of_work() as uow:
            referenced_keys = {ORIGINALS_PREFIX + hash_id for hash_id in uow.session.scalars(query)}
        for key in keys:
            stray = Stray(StrayKind.OBJECT_WITHOUT_ROW, key)
            # Check a second time that the object has no row, because the row may have been written
            # in the meantime.
            if key not in referenced_keys and _is_still_stray(resources, stray):
                yield stray


def _is_still_stray(resources: Resources, stray: Stray) -> bool:
    has_object = resources.objects.exists(stray.key)
    with resources.unit_of_work() as uow:
        row = uow.session.scalar(_select_row(stray.key))
        has_row = row is not None and _is_referenced(row, stray.key)
    is_object = stray.kind is StrayKind.OBJECT_WITHOUT_ROW
    return has_object == is_object and has_row != is_object


def _select_row(key: str) -> Select[Attachment]:
    prefix, _, name = key.partition("/")
    if f"{prefix}/" == MEDIA_PREFIX:
        return select(Attachment).where(Attachment.filename == name)
    return select(Attachment).where(Attachment.hash_id == name.partition("/")[0])


def _is_referenced(row: Attachment, key: str) -> bool:
    if key.startswith(ORIGINALS_PREFIX):
        return row.status in _STATUSES_WITH_ORIGINAL
    if row.status == AttachmentStatus.PROCESSING:
        # While an attachment is being processed, any of its files may already exist.
        return key.startswith(tuple(files.list_file_keys(row)))
    return row.status == AttachmentStatus.READY and key in _list_keys(row, key)


def _list_keys(row: Attachment, prefix: str) -> Sequence[str]:
    """Return the sorted keys of an attachment's image or renditions, depending on ``prefix``."""
    if prefix.startswith(MEDIA_PREFIX):
        return [files.build_media_key(row)]
    return sorted(files.get_file_key(row, rendition) for rendition in files.list_renditions(row))


def _iterate_referenced_keys(
    resources: Resources, prefix: str, before: datetime
) -> Iterator[tuple[str, bool, StrayKind]]:
    """Yield the sorted storage keys with this prefix in all attachment rows.

    The second value of each tuple says whether the object must exist, because its attachment became
    ready before ``before``.
    """
    last_hash_id = ""
    query = select(Attachment).order_by(Attachment.hash_id).limit(_MAX_BATCH_ROWS)
    if prefix == RENDITIONS_PREFIX:
        query = query.where(Attachment.renditions.is_not(None))
    while True:
        with resources.unit_of_work() as uow:
            batch = uow.session.scalars(query.where(Attachment.hash_id > last_hash_id)).all()
        for row in batch:
            if row.status in (AttachmentStatus.READY, AttachmentStatus.PROCESSING):
                is_required = row.status == AttachmentStatus.READY and row.updated_at < before
                for key in _list_keys(row, prefix):
                    yield key, is_required, StrayKind.ROW_WITHOUT_OBJECT
        if len(batch) < _MAX_BATCH_ROWS:
            return
        last_hash_id = batch[-1].hash_id
