"""Files of members in every form that somebody may send, with what a reader must find in them."""

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from services.subscriptions.imports.formats import RowReader, open_member_rows
from services.subscriptions.imports.rows import MemberRow, RejectedRecord


@dataclass(frozen=True)
class Person:
    email: str
    name: str


@dataclass(frozen=True)
class Form:
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


class Dribble:
    """A source that only goes forward and brings at most ``size`` bytes a read."""

    def __init__(self, data: bytes, size: int) -> None:
        self._file = io.BytesIO(data)
        self._size = size

    def read(self, size: int, /) -> bytes:
        return self._file.read(min(size, self._size))


class Stored:
    """An object that is read in ranges, and counts what it gave."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads = 0

    @property
    def size(self) -> int:
        return len(self.data)

    def read_at(self, offset: int, count: int, /) -> bytes:
        self.reads += 1
        return self.data[offset : offset + count]


def written(people: Sequence[Person], form: Form) -> tuple[bytes, list[int]]:
    """The file, and the line where each person's record begins."""
    text, lines = _json_lines(people, form) if form.json else _delimited(people, form)
    if not form.last_newline:
        text = text.removesuffix(form.newline)
    return packed(text.encode(form.encoding), form.compression), lines


def _delimited(people: Sequence[Person], form: Form) -> tuple[str, list[int]]:
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


def _json_lines(people: Sequence[Person], form: Form) -> tuple[str, list[int]]:
    objects = [json.dumps({"email": one.email, "name": one.name}) for one in people]
    return "".join(one + form.newline for one in objects), [*range(1, len(people) + 1)]


def packed(data: bytes, compression: str) -> bytes:
    if compression == "gzip":
        return gzip.compress(data, mtime=0)
    if compression == "zip":
        return zipped({"members.csv": data})
    return data


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def opened(data: bytes | str, **options: object) -> RowReader:
    raw = data.encode() if isinstance(data, str) else data
    return open_member_rows(io.BytesIO(raw), **options)  # type: ignore[arg-type]


def rows(data: bytes | str, **options: object) -> list[MemberRow]:
    """The rows of a file that has no problem."""
    found = [*opened(data, **options)]
    assert [one for one in found if isinstance(one, RejectedRecord)] == []
    return [one for one in found if isinstance(one, MemberRow)]


def outcome(data: bytes | str, **options: object) -> list[tuple[int, str]]:
    """Of each record its line, and its address or the code of its problem."""
    return [
        (one.line, one.code if isinstance(one, RejectedRecord) else one.email)
        for one in opened(data, **options)
    ]
