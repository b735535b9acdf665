"""Strays: objects that no row names, and rows whose object is gone.

A crash, or a connection that breaks at the wrong moment, may leave an object without a row. A
bucket restored from an older copy may lack an object that a row names. The search through the
converted images reads objects and rows in the order of their names, side by side, so that it needs
little memory for any number.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby, islice
from operator import itemgetter

from sqlalchemy import select, update

from core.lanes import Lane
from models import Attachment, AttachmentStatus
from services.jobs import upkeep
from services.media.attachments.files import MEDIA, ORIGINALS
from storage.resources import Resources

SWEEP_UPLOADS = upkeep.register(
    upkeep.UpkeepKind("maintenance.sweep_uploads", every=timedelta(hours=1), lane=Lane.UPKEEP)
)
# A younger object or row may be that of a running request or job, which writes the other soon.
STRAY_GRACE = timedelta(hours=1)
_MAX_BATCH_ROWS = 1000
# Few, since a stray is looked at once more right before it goes.
_MAX_REMOVED_AT_ONCE = 100
# Of a failed one the original stays for a while, and then has its removal.
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
    stored = (
        (item.key, item.modified_at < before, StrayKind.OBJECT_WITHOUT_ROW)
        for item in resources.objects.stored(MEDIA)
    )
    named = _named_media(resources, before)
    for key, found in groupby(heapq.merge(stored, named), key=itemgetter(0)):
        (_, is_old, kind), *others = found
        stray = Stray(kind, key)
        # Object and row were read at different moments, so check this one again.
        if is_old and not others and _is_still_stray(resources, stray):
            yield stray
    yield from _stray_originals(resources, before)


def mend(resources: Resources, stray: Stray) -> None:
    """Remove an object that no row names; fail a row whose object is gone."""
    if stray.kind is StrayKind.OBJECT_WITHOUT_ROW:
        resources.objects.remove(stray.key)
        return
    error = {"code": "attachment.object_missing", "message": "The stored file is gone."}
    with resources.unit_of_work() as uow:
        uow.session.execute(
            update(Attachment)
            .where(Attachment.filename == stray.key.removeprefix(MEDIA))
            .values(status=AttachmentStatus.FAILED, error=error)
        )


def sweep_uploads(resources: Resources, *, now: datetime) -> int:
    """Remove originals that no attachment waits for, and return their number.

    A crash leaves them. The cost is that of the originals that are there, whatever the number of
    attachments. Converted images are not looked at: each is named by a row or by its removal from
    before it is written until it is gone.
    """
    removed = 0
    strays = _stray_originals(resources, now - STRAY_GRACE)
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
    if stray.key.startswith(MEDIA):
        named = Attachment.filename == stray.key.removeprefix(MEDIA)
        statuses = [AttachmentStatus.READY, AttachmentStatus.PROCESSING]
    else:
        named = Attachment.hash_id == stray.key.removeprefix(ORIGINALS)
        statuses = list(_WITH_ORIGINAL)
    query = select(Attachment.id).where(named, Attachment.status.in_(statuses))
    with resources.unit_of_work() as uow:
        has_row = uow.session.scalar(query) is not None
    is_object = stray.kind is StrayKind.OBJECT_WITHOUT_ROW
    return has_object == is_object and has_row != is_object


def _named_media(resources: Resources, before: datetime) -> Iterator[tuple[str, bool, StrayKind]]:
    """Yield the keys of converted images that rows name, in the bucket's order of keys.

    With each is told whether its object must exist, since the row is old enough. A row names its
    converted image from the start, which must exist once the row is ready.
    """
    last = ""
    named = (AttachmentStatus.READY, AttachmentStatus.PROCESSING)
    columns = select(Attachment.filename, Attachment.status, Attachment.updated_at)
    while True:
        query = columns.where(Attachment.filename > last).order_by(Attachment.filename)
        with resources.unit_of_work() as uow:
            batch = uow.session.execute(query.limit(_MAX_BATCH_ROWS)).all()
        for name, status, updated_at in batch:
            if status in named:
                is_required = status == AttachmentStatus.READY and updated_at < before
                yield MEDIA + name, is_required, StrayKind.ROW_WITHOUT_OBJECT
        if len(batch) < _MAX_BATCH_ROWS:
            return
        last = batch[-1][0]
