"""How long the files of imports and exports are kept, and what becomes of those nobody knows."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import chain
from typing import cast

from sqlalchemy import delete, func, select

from models import ImportChunk, MemberExport, MemberImport
from services.mailing.exports import EXPORTS
from services.mailing.imports.accept import IMPORTS
from storage.parts import remove_all
from storage.resources import Resources

BULK_FILE_RETENTION = timedelta(days=7)
# An upload takes hours at most; what is older and belongs to nothing was left by a crash.
STRAY_FILE_AGE = timedelta(days=1)


def sweep(resources: Resources, *, now: datetime) -> int:
    """Remove what is older than its time; how many imports and exports that concerned."""
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
            kind.files_removed_at.is_(None),
            kind.created_at < before,
            kind.finished_at.is_not(None),
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
        found.files_removed_at = func.now()
        prefix = found.object_prefix
        # Should it fail, the row still names the objects, and the search for strays finds them.
        uow.after_commit(lambda: remove_all(resources.objects, prefix))
    return True


def _strays(resources: Resources, *, before: datetime) -> Iterator[str]:
    """Prefixes of old objects that no import or export with files has."""
    seen = ""
    for stored in chain(resources.objects.stored(IMPORTS), resources.objects.stored(EXPORTS)):
        prefix = "/".join(stored.key.split("/")[:2])
        if prefix == seen or stored.modified_at > before:
            continue
        seen = prefix
        if not _is_known(resources, prefix):
            yield prefix


def _is_known(resources: Resources, prefix: str) -> bool:
    with resources.unit_of_work() as uow:
        return any(
            uow.session.scalar(
                select(kind.id).where(kind.object_prefix == prefix, kind.files_removed_at.is_(None))
            )
            for kind in (MemberImport, MemberExport)
        )
