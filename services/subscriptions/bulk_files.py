"""Removal of the files of old imports and exports, and of files that belong to neither."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import cast

from sqlalchemy import delete, func, select

from core import ids
from models import ImportChunk, MemberExport, MemberImport, NamedMember
from services import removals
from services.jobs.maintenance import register_maintenance
from storage.encryption import WrappedKey
from storage.objects import ObjectMissing
from storage.parts import PartWriter, StoredFile, remove_all
from storage.resources import Resources

IMPORTS, EXPORTS = "imports/", "exports/"


@dataclass(frozen=True)
class NewFile:
    """A file that is about to be written; the keys of all its objects begin with ``prefix``."""

    prefix: str
    writer: PartWriter
    wrapped: WrappedKey

    def name_in(self, row: MemberImport | MemberExport) -> None:
        """Make it the row's file."""
        row.object_prefix = self.prefix
        row.wrapped_key, row.wrapped_by = self.wrapped.data, self.wrapped.wrapped_by


def new_file(resources: Resources, folder: str) -> NewFile:
    """A file under ``IMPORTS`` or ``EXPORTS``, with a new key."""
    prefix = folder + ids.random_hash_id(20)
    key, wrapped = resources.key_wrapper.new_key(prefix)
    return NewFile(prefix, PartWriter(resources.objects, prefix, key), wrapped)


def data_key(resources: Resources, row: MemberImport | MemberExport) -> bytes:
    """The key of the row's file; raises ``Tampered``, and ``ObjectMissing`` once it is removed."""
    if row.wrapped_key is None or row.wrapped_by is None:
        raise ObjectMissing(row.object_prefix)
    wrapped = WrappedKey(row.wrapped_by, row.wrapped_key)
    return resources.key_wrapper.unwrap(wrapped, row.object_prefix)


def stored_file(resources: Resources, row: MemberImport | MemberExport) -> StoredFile:
    """The row's whole file; raises as ``data_key`` does."""
    assert row.size is not None
    return StoredFile(resources.objects, row.object_prefix, row.size, data_key(resources, row))


SWEEP_FILES = register_maintenance(
    "maintenance.sweep_files",
    every=timedelta(hours=1),
    run=lambda resources, began_at: sweep(resources, now=began_at),
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
    seen = ""
    for stored in chain(resources.objects.stored(IMPORTS), resources.objects.stored(EXPORTS)):
        prefix = "/".join(stored.key.split("/")[:2])
        if prefix == seen or stored.modified_at > now - STRAY_FILE_AGE:
            continue
        seen = prefix
        kind = MemberImport if prefix.startswith(IMPORTS) else MemberExport
        own = kind.object_prefix == prefix, kind.files_removed_at.is_(None)
        with resources.unit_of_work() as uow:
            is_known = uow.session.scalar(select(kind.id).where(*own))
        if not is_known:
            remove_all(resources.objects, prefix)
            removed += 1
    return removed


def _remove_oldest(
    resources: Resources, kind: type[MemberImport] | type[MemberExport], *, before: datetime
) -> bool:
    # The second condition finds them in the index; the job may have ended much later.
    is_old = kind.files_removed_at.is_(None), kind.created_at < before, kind.finished_at < before
    oldest = select(kind).where(*is_old).order_by(kind.created_at).limit(1)
    query = oldest.with_for_update(skip_locked=True)
    with resources.unit_of_work() as uow:
        found = cast("MemberImport | MemberExport | None", uow.session.scalar(query))
        if found is None:
            return False
        if isinstance(found, MemberImport):
            for kept in (ImportChunk, NamedMember):
                uow.session.execute(delete(kept).where(kept.import_id == found.id))
            found.samples = None
        found.files_removed_at = func.now()
        # A copy of the file that was kept elsewhere opens no more.
        found.wrapped_key = found.wrapped_by = None
        removals.forget(uow, f"{found.object_prefix}/")
    return True
