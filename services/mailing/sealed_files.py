"""The files of imports and exports: encrypted in object storage, each under a key of its own."""

from dataclasses import dataclass

from core import ids
from models import MemberExport, MemberImport
from storage.encryption import WrappedKey
from storage.objects import ObjectMissing
from storage.parts import PartWriter, StoredFile
from storage.resources import Resources

IMPORTS, EXPORTS = "imports/", "exports/"


@dataclass(frozen=True)
class NewFile:
    """A file that is about to be written.

    Attributes:
        prefix: how the keys of all its objects begin.
        wrapped: the file's key as its row keeps it.
    """

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
    """The key of the row's file.

    Raises ``ObjectMissing`` once the file is removed, and ``Tampered``.
    """
    if row.wrapped_key is None or row.wrapped_by is None:
        raise ObjectMissing(row.object_prefix)
    wrapped = WrappedKey(row.wrapped_by, row.wrapped_key)
    return resources.key_wrapper.unwrap(wrapped, row.object_prefix)


def stored_file(resources: Resources, row: MemberImport | MemberExport) -> StoredFile:
    """The row's whole file; raises as ``data_key`` does."""
    assert row.size is not None
    return StoredFile(resources.objects, row.object_prefix, row.size, data_key(resources, row))
