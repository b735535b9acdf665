"""Creates, opens and removes the encrypted files of member imports and member exports."""

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
from storage.parts import PartWriter, StoredFile, remove_prefix
from storage.resources import Resources

IMPORTS = "imports/"
EXPORTS = "exports/"
BULK_FILE_RETENTION = timedelta(days=7)
# A file that no import or export uses is removed at this age. The age must exceed the duration of
# an upload, which may be a few hours.
STRAY_FILE_AGE = timedelta(days=1)
SWEEP_FILES = register_maintenance(
    "maintenance.sweep_files",
    every=timedelta(hours=1),
    run=lambda resources, began_at: remove_old_files(resources, now=began_at),
)


@dataclass(frozen=True)
class NewFile:
    """An empty file. Its object keys begin with ``prefix``. ``wrapped`` is its encrypted key."""

    prefix: str
    writer: PartWriter
    wrapped: WrappedKey

    def assign_to(self, row: MemberImport | MemberExport) -> None:
        row.object_prefix = self.prefix
        row.wrapped_key = self.wrapped.data
        row.wrapped_by = self.wrapped.wrapped_by


def create_file(resources: Resources, folder: str) -> NewFile:
    prefix = folder + ids.random_hash_id(20)
    key, wrapped = resources.key_wrapper.create_key(prefix)
    return NewFile(prefix, PartWriter(resources.objects, prefix, key), wrapped)


def unwrap_key(resources: Resources, row: MemberImport | MemberExport) -> bytes:
    """Decrypt a file's key.

    Raises ``ObjectMissing`` if the file was removed, or ``DecryptionFailed``.
    """
    if row.wrapped_key is None or row.wrapped_by is None:
        raise ObjectMissing(row.object_prefix)
    wrapped = WrappedKey(row.wrapped_by, row.wrapped_key)
    return resources.key_wrapper.unwrap(wrapped, row.object_prefix)


def open_stored_file(resources: Resources, row: MemberImport | MemberExport) -> StoredFile:
    assert row.size is not None
    return StoredFile(resources.objects, row.object_prefix, row.size, unwrap_key(resources, row))


def remove_old_files(resources: Resources, *, now: datetime) -> int:
    removed_count = 0
    for kind in (MemberImport, MemberExport):
        while _remove_oldest(resources, kind, before=now - BULK_FILE_RETENTION):
            removed_count += 1
    previous_prefix = ""
    for stored in chain(
        resources.objects.list_objects(IMPORTS), resources.objects.list_objects(EXPORTS)
    ):
        prefix = "/".join(stored.key.split("/")[:2])
        if prefix == previous_prefix or stored.modified_at > now - STRAY_FILE_AGE:
            continue
        previous_prefix = prefix
        kind = MemberImport if prefix.startswith(IMPORTS) else MemberExport
        query = select(kind.id).where(kind.object_prefix == prefix, kind.files_removed_at.is_(None))
        with resources.unit_of_work() as uow:
            row_id = uow.session.scalar(query)
        if row_id is None:
            remove_prefix(resources.objects, prefix)
            removed_count += 1
    return removed_count


def _remove_oldest(
    resources: Resources, kind: type[MemberImport] | type[MemberExport], *, before: datetime
) -> bool:
    query = (
        select(kind)
        .where(
            kind.files_removed_at.is_(None),
            # The condition on ``created_at`` allows an index scan. The condition on ``finished_at``
            # keeps the files of recently ended jobs.
            kind.created_at < before,
            kind.finished_at < before,
        )
        .order_by(kind.created_at)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    with resources.unit_of_work() as uow:
        row = cast("MemberImport | MemberExport | None", uow.session.scalar(query))
        if row is None:
            return False
        if isinstance(row, MemberImport):
            for model in (ImportChunk, NamedMember):
                uow.session.execute(delete(model).where(model.import_id == row.id))
            row.samples = None
        row.files_removed_at = func.now()
        # Delete the encryption key, so that a remaining copy of the file can't be decrypted.
        row.wrapped_key = None
        row.wrapped_by = None
        removals.forget_objects(uow, f"{row.object_prefix}/")
    return True
