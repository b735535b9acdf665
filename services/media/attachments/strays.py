"""Strays: objects that no row names, and rows whose object is gone.

A crash, or a connection that breaks at the wrong moment, may leave an object without a row. A
bucket restored from an older copy may lack an object that a row names. The search reads objects
and rows in the order of their names, side by side, so that it needs little memory for any number.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby
from operator import itemgetter

from sqlalchemy import select, update

from models import Attachment, AttachmentStatus
from services.media.attachments.files import MEDIA, ORIGINALS
from storage.resources import Resources

# A younger object or row may be that of a running request or job, which writes the other soon.
STRAY_GRACE = timedelta(hours=1)
_MAX_BATCH_ROWS = 1000


class StrayKind(StrEnum):
    OBJECT_WITHOUT_ROW = "object without row"
    ROW_WITHOUT_OBJECT = "row without object"


@dataclass(frozen=True)
class Stray:
    kind: StrayKind
    key: str


def find(
    resources: Resources, *, now: datetime, prefixes: tuple[str, ...] = (MEDIA, ORIGINALS)
) -> Iterator[Stray]:
    """Yield every stray that is older than the grace period."""
    before = now - STRAY_GRACE
    for prefix in prefixes:
        stored = (
            (item.key, item.modified_at < before, StrayKind.OBJECT_WITHOUT_ROW)
            for item in resources.objects.stored(prefix)
        )
        named = _named_objects(resources, prefix, before)
        for key, found in groupby(heapq.merge(stored, named), key=itemgetter(0)):
            (_, is_old, kind), *others = found
            stray = Stray(kind, key)
            # Object and row were read at different moments, so check this one again.
            if is_old and not others and _is_still_stray(resources, stray):
                yield stray


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


def sweep_uploads(resources: Resources, *, now: datetime) -> None:
    """Remove originals that no attachment waits for: a crash leaves them."""
    for stray in find(resources, now=now, prefixes=(ORIGINALS,)):
        mend(resources, stray)


def _is_still_stray(resources: Resources, stray: Stray) -> bool:
    has_object = resources.objects.exists(stray.key)
    if stray.key.startswith(MEDIA):
        named = Attachment.filename == stray.key.removeprefix(MEDIA)
        statuses = [AttachmentStatus.READY, AttachmentStatus.PROCESSING]
    else:
        named = Attachment.hash_id == stray.key.removeprefix(ORIGINALS)
        # Of a failed one the original stays for a while, and then has its removal.
        statuses = [AttachmentStatus.PROCESSING, AttachmentStatus.FAILED]
    query = select(Attachment.id).where(named, Attachment.status.in_(statuses))
    with resources.unit_of_work() as uow:
        has_row = uow.session.scalar(query) is not None
    is_object = stray.kind is StrayKind.OBJECT_WITHOUT_ROW
    return has_object == is_object and has_row != is_object


def _named_objects(
    resources: Resources, prefix: str, before: datetime
) -> Iterator[tuple[str, bool, StrayKind]]:
    """Yield the keys that rows name under a prefix, in the bucket's order of keys.

    With each is told whether its object must exist, since the row is old enough.

    A row names its converted image from the start, which must exist once the row is ready, and its
    original until then. A failed one may have its original, until its removal is due.
    """
    column = Attachment.filename if prefix == MEDIA else Attachment.hash_id
    last = ""
    while True:
        with resources.unit_of_work() as uow:
            query = select(column, Attachment.status, Attachment.updated_at).where(column > last)
            batch = uow.session.execute(query.order_by(column).limit(_MAX_BATCH_ROWS)).all()
        for name, status, updated_at in batch:
            is_ready = status == AttachmentStatus.READY
            if status == AttachmentStatus.PROCESSING or is_ready == (prefix == MEDIA):
                is_required = is_ready and updated_at < before
                yield prefix + name, is_required, StrayKind.ROW_WITHOUT_OBJECT
        if len(batch) < _MAX_BATCH_ROWS:
            return
        last = batch[-1][0]
