"""Writes files of members in many formats, and reads files with the product's reader."""

import gzip
import io
import zipfile
from collections.abc import Mapping

from services.subscriptions.imports.formats.formats import RowReader, open_member_rows
from services.subscriptions.imports.rows import MemberRow, RejectedRecord


class StoredObject:
    """Imitates a file in object storage, and counts how often a range of its bytes is read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads = 0

    @property
    def size(self) -> int:
        return len(self.data)

    def read_at(self, offset: int, count: int, /) -> bytes:
        self.reads += 1
        return self.data[offset : offset + count]


def compress(data: bytes, compression: str) -> bytes:
    if compression == "gzip":
        return gzip.compress(data, mtime=0)
    if compression == "zip":
        return zip_files({"members.csv": data})
    return data


def zip_files(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def open_reader(data: bytes | str, **options: object) -> RowReader:
    raw = data.encode() if isinstance(data, str) else data
    return open_member_rows(io.BytesIO(raw), **options)  # type: ignore[arg-type]


def read_rows(data: bytes | str, **options: object) -> list[MemberRow]:
    """Return the rows of a file, and require that no record is rejected."""
    records = [*open_reader(data, **options)]
    assert [each for each in records if isinstance(each, RejectedRecord)] == []
    return [each for each in records if isinstance(each, MemberRow)]


def read_outcomes(data: bytes | str, **options: object) -> list[tuple[int, str]]:
    """Return each record's line number, with the record's address or its error code."""
    return [
        (each.line, each.code if isinstance(each, RejectedRecord) else each.email)
        for each in open_reader(data, **options)
    ]
