"""Writes files of members in many formats, and reads files with the product's reader."""

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from services.subscriptions.imports.formats.formats import RowReader, open_member_rows
from services.subscriptions.imports.rows import MemberRow, RejectedRecord


@dataclass(frozen=True)
class Person:
    email: str
    name: str


@dataclass(frozen=True)
class FileFormat:
    """The format of a file of members, such as its encoding and its delimiter.

    With ``blank_every=3``, for example, the file contains an empty line before every third record.
    With ``blank_every=0``, the file contains no empty lines.
    """

    encoding: str = "utf-8"
    delimiter: str = ","
    newline: str = "\r\n"
    quote_all: bool = False
    header: Sequence[str] = ("email", "name")
    mapping: Mapping[str, str] = field(default_factory=dict)
    compression: str = "plain"
    blank_every: int = 0
    last_newline: bool = True
    json: bool = False


class SlowFile:
    """A file that can't seek, and that returns at most ``size`` bytes per read."""

    def __init__(self, data: bytes, size: int) -> None:
        self._file = io.BytesIO(data)
        self._size = size

    def read(self, size: int, /) -> bytes:
        return self._file.read(min(size, self._size))


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


def write_file(people: Sequence[Person], form: FileFormat) -> tuple[bytes, list[int]]:
    """Return a file with one record per person, and the line number at which each record begins.

    ``form``: the format of the file.
    """
    text, lines = _write_json(people, form) if form.json else _write_csv(people, form)
    if not form.last_newline:
        text = text.removesuffix(form.newline)
    return compress(text.encode(form.encoding), form.compression), lines


def _write_csv(people: Sequence[Person], form: FileFormat) -> tuple[str, list[int]]:
    out = io.StringIO(newline="")
    quoting: Literal[0, 1] = csv.QUOTE_ALL if form.quote_all else csv.QUOTE_MINIMAL
    writer = csv.writer(out, delimiter=form.delimiter, lineterminator=form.newline, quoting=quoting)
    if form.header:
        writer.writerow(form.header)
    lines = []
    for number, person in enumerate(people, 1):
        if form.blank_every and number % form.blank_every == 0:
            out.write(form.newline)
        lines.append(out.getvalue().count(form.newline) + 1)
        writer.writerow([person.email, person.name.replace("\n", form.newline)])
    return out.getvalue(), lines


def _write_json(people: Sequence[Person], form: FileFormat) -> tuple[str, list[int]]:
    objects = [json.dumps({"email": person.email, "name": person.name}) for person in people]
    return "".join(line + form.newline for line in objects), [*range(1, len(people) + 1)]


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
