"""Removal of the files of old imports and exports, and of files that belong to neither."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import chain
from typing import cast

from sqlalchemy import delete, func, select

from core.lanes import Lane
from models import ImportChunk, MemberExport, MemberImport
from services import removals
from services.jobs import upkeep
from services.mailing.sealed_files import EXPORTS, IMPORTS
from storage.parts import remove_all
from storage.resources import Resources

SWEEP_FILES = upkeep.register(
    upkeep.UpkeepKind("maintenance.sweep_files", every=timedelta(hours=1), lane=Lane.UPKEEP)
)
BULK_FILE_RETENTION = timedelta(days=7)
# An upload takes hours at most: an older file without an import or export was left by a crash.
STRAY_FILE_AGE = timedelta(days=1)


def sweep(resources: Resources, *, now: datetime) -> int:
    """Remove old files and stray ones; returns the number of imports, exports and strays."""
    removed = 0
    for kind in (MemberImport, MemberExport):
        while _remove_oldest(resources, kind, before=now - BULK_FILE_RETENTION):
            removed += 1
    for prefix in _strays(resources, before=now - STRAY_FILE_AGE):
        remove_all(resources.objects, prefix)
        removed += 1
    return removed


def _remove_oldest(
    resources: Resources, kind: type[MemberImport] | type[MemberExport], *, before: datetime
) -> bool:
    query = (
        select(kind)
        .where(
            # The second condition finds them in the index; the job may have ended much later.
            kind.files_removed_at.is_(None),
            kind.created_at < before,
            kind.finished_at < before,
        )
        .order_by(kind.created_at)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    with resources.unit_of_work() as uow:
        found = cast("MemberImport | MemberExport | None", uow.session.scalar(query))
        if found is None:
            return False
        if isinstance(found, MemberImport):
            uow.session.execute(delete(ImportChunk).where(ImportChunk.import_id == found.id))
            found.samples = None
        found.files_removed_at = func.now()
        # A copy of the file that was kept elsewhere opens no more.
        found.wrapped_key = found.wrapped_by = None
        removals.forget(uow, f"{found.object_prefix}/")
    return True


def _strays(resources: Resources, *, before: datetime) -> Iterator[str]:
    """Prefixes of old objects that belong to no import or export with files."""
    seen = ""
    for stored in chain(resources.objects.stored(IMPORTS), resources.objects.stored(EXPORTS)):
        prefix = "/".join(stored.key.split("/")[:2])
        if prefix == seen or stored.modified_at > before:
            continue
        seen = prefix
        with resources.unit_of_work() as uow:
            is_known = any(
                uow.session.scalar(
                    select(kind.id).where(
                        kind.object_prefix == prefix, kind.files_removed_at.is_(None)
                    )
                )
                for kind in (MemberImport, MemberExport)
            )
        if not is_known:
            yield prefix
