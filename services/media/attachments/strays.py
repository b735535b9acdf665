"""Rows without objects, and objects without rows.

A crash, or a connection that broke at the wrong moment, may leave an object that no row names; a
bucket restored from an older copy may lack one that a row does. Both sides are read in the order
of their names, side by side, so that any number of them takes little memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import select, update

from models import Attachment, AttachmentStatus
from services.media.attachments.files import MEDIA, ORIGINALS
from storage.resources import Resources

# What is younger may be of a request or job under way, whose other half comes in a moment.
STRAY_GRACE = timedelta(hours=1)
_BATCH = 1000


class StrayKind(StrEnum):
    OBJECT_WITHOUT_ROW = "object without row"
    ROW_WITHOUT_OBJECT = "row without object"


@dataclass(frozen=True)
class Stray:
    fault: StrayKind
    key: str


def find(
    resources: Resources, *, now: datetime, prefixes: tuple[str, ...] = (MEDIA, ORIGINALS)
) -> Iterator[Stray]:
    """Every stray that is older than the grace period."""
    for prefix in prefixes:
        for stray in _compare(resources, prefix, before=now - STRAY_GRACE):
            # Both sides were read at different moments: look at this one again.
            if _is_still(resources, stray):
                yield stray


def mend(resources: Resources, stray: Stray) -> None:
    """Remove an object that no row names; fail a row whose object is gone."""
    if stray.fault is StrayKind.OBJECT_WITHOUT_ROW:
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
    """Remove uploads that no attachment waits for any more: what a crash left behind."""
    for stray in find(resources, now=now, prefixes=(ORIGINALS,)):
        mend(resources, stray)


def _is_still(resources: Resources, stray: Stray) -> bool:
    has_object = resources.objects.exists(stray.key)
    if stray.fault is StrayKind.OBJECT_WITHOUT_ROW:
        return has_object and not _claimed(resources, stray.key)
    return not has_object and _claimed(resources, stray.key)


def _claimed(resources: Resources, key: str) -> bool:
    """Whether some row names the object now."""
    if key.startswith(MEDIA):
        named = Attachment.filename == key.removeprefix(MEDIA)
        statuses = [AttachmentStatus.READY, AttachmentStatus.PROCESSING]
    else:
        named = Attachment.hash_id == key.removeprefix(ORIGINALS)
        statuses = [AttachmentStatus.PROCESSING]
    query = select(Attachment.id).where(named, Attachment.status.in_(statuses))
    with resources.unit_of_work() as uow:
        return uow.session.scalar(query) is not None


def _compare(resources: Resources, prefix: str, *, before: datetime) -> Iterator[Stray]:
    """A merge of two sorted streams: the bucket's keys and those that rows name."""
    rows = _named(resources, prefix, before)
    row = next(rows, None)
    for item in resources.objects.stored(prefix):
        while row is not None and row.key < item.key:
            yield from _missing(row)
            row = next(rows, None)
        if row is not None and row.key == item.key:
            row = next(rows, None)
        elif item.modified_at < before:
            yield Stray(StrayKind.OBJECT_WITHOUT_ROW, item.key)
    while row is not None:
        yield from _missing(row)
        row = next(rows, None)


@dataclass(frozen=True)
class _Named:
    key: str
    # Old enough, and of a kind, that its object must be there.
    required: bool


def _missing(row: _Named) -> Iterator[Stray]:
    if row.required:
        yield Stray(StrayKind.ROW_WITHOUT_OBJECT, row.key)


def _named(resources: Resources, prefix: str, before: datetime) -> Iterator[_Named]:
    """The keys that rows name under a prefix, sorted as the bucket sorts them."""
    column = Attachment.filename if prefix == MEDIA else Attachment.hash_id
    last = ""
    while True:
        with resources.unit_of_work() as uow:
            batch = uow.session.execute(
                select(column, Attachment.status, Attachment.updated_at)
                .where(column > last)
                .order_by(column)
                .limit(_BATCH)
            ).all()
        for name, status, updated_at in batch:
            yield from _row(prefix, name, status, is_old=updated_at < before)
        if len(batch) < _BATCH:
            return
        last = batch[-1][0]


def _row(prefix: str, name: str, status: int, *, is_old: bool) -> Iterator[_Named]:
    """What a row lays claim to: its media once ready, its original while that is needed."""
    if prefix == MEDIA:
        if status in (AttachmentStatus.READY, AttachmentStatus.PROCESSING):
            yield _Named(prefix + name, required=is_old and status == AttachmentStatus.READY)
    elif status == AttachmentStatus.PROCESSING:
        yield _Named(prefix + name, required=False)
