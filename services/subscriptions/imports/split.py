"""Splits a stored file into numbered chunks of judged rows, a few seconds at a time.

A reader can't be moved to another process, so the job stays in the process that began the file
until it is split. After a crash, or where a process has too many open files, another process reads
from the first byte again and passes over the stored chunks: a file always makes the same chunks.
"""

import dataclasses
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import orjson
from sqlalchemy import select

from core import clock
from core.errors import DomainError
from core.errors import imports as errors
from models import FieldType, ImportKind, MemberField, MemberImport
from services.accounts import email_addresses
from services.accounts.email_addresses import InvalidAddress
from services.subscriptions import bulk_files, fields
from services.subscriptions.fields import MAX_FIELDS
from services.subscriptions.imports import cells, shown_cells
from services.subscriptions.imports.columns import (
    IGNORED,
    MAX_COLUMN_NAMES_SHOWN,
    ColumnLayout,
    MemberRow,
    RejectedRecord,
    SuppressionStatus,
    suppressed,
)
from services.subscriptions.imports.containers import DecodedText, ranged_file
from services.subscriptions.imports.encodings import EncodingUnclear
from services.subscriptions.imports.endings import (
    DUPLICATE_CODE,
    ROWS_PER_CHUNK,
    JudgedRow,
    chunk_key,
    encode,
)
from services.subscriptions.imports.names import tidy_name
from services.subscriptions.imports.reader import as_lines, open_rows, pass_over
from services.subscriptions.imports.shown_cells import (
    MAX_ROWS_SHOWN,
    AnyRow,
    ImportSamples,
    Problems,
)
from services.subscriptions.imports.written_forms import ColumnForms, DateOrder
from storage.encryption import seal
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# Rows that are judged together: checking addresses, and the database, are faster on many. A row
# may have a quarter of a million characters, so the characters of a batch are bounded too.
MAX_BATCH_ROWS = 2_000
MAX_BATCH_CHARACTERS = 1_000_000
# Addresses of one file that are kept in memory: some ten megabytes, and enough for any request.
MAX_ADDRESSES_IN_MEMORY = 100_000
# The other addresses of one file, on disk: some twenty million of the usual length.
MAX_SEEN_BYTES = 1024**3


class SeenAddresses:
    """The addresses of one file so far, in bounded memory and on a bounded part of the disk.

    Further addresses go to a temporary SQLite database without a name, in the folder that
    ``SQLITE_TMPDIR`` or ``TMPDIR`` names. The system deletes it when it is closed.
    """

    def __init__(self, max_bytes: int = MAX_SEEN_BYTES) -> None:
        self._first: set[str] = set()
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -8000"):
            self._database.execute(f"PRAGMA {setting}")
        [(page_bytes,)] = self._database.execute("PRAGMA page_size")
        self._database.execute(f"PRAGMA max_page_count = {max_bytes // page_bytes}")
        self._database.execute("CREATE TABLE seen (address TEXT PRIMARY KEY) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def add(self, found: list[str]) -> set[str]:
        """Add these addresses; returns those of them that an earlier call added.

        Raises ``import.too_many_addresses`` when there is no room for more.
        """
        before = self._first.intersection(found)
        fresh = set(found) - before
        if len(self._first) < MAX_ADDRESSES_IN_MEMORY:
            self._first |= fresh
            return before
        if not fresh:
            return before
        # In the order of the index, so that neighbours land on the same page.
        added = sorted(fresh)
        rows = ",".join(["(?)"] * len(added))
        insert = f"INSERT INTO seen VALUES {rows} ON CONFLICT DO NOTHING RETURNING address"  # noqa: S608 - marks alone
        try:
            new = {address for (address,) in self._database.execute(insert, added)}
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            raise errors.IMPORT_TOO_MANY_ADDRESSES() from error
        return before | (fresh - new)

    def close(self) -> None:
        self._database.close()


def judge_rows(
    rows: Iterable[MemberRow | RejectedRecord], seen: SeenAddresses, at_once: int = MAX_BATCH_ROWS
) -> Iterator[tuple[list[JudgedRow], int]]:
    """Batches of at most ``at_once`` rows, each batch with the number of its characters.

    Each row has its normalised address, or the reason why it is not applied.
    """
    unread = iter(rows)
    while True:
        batch, characters = [], 0
        for row in islice(unread, at_once):
            batch.append(row)
            characters += sum(map(len, row.cells))
            if isinstance(row, MemberRow) and row.extras is not None:
                # Much longer than the cells that don't fit.
                characters += sum(map(len, map(str, row.extras.left_out)))
            if characters >= MAX_BATCH_CHARACTERS:
                break
        if not batch:
            return
        yield list(_judge(batch, seen)), characters


def _judge(batch: list[MemberRow | RejectedRecord], seen: SeenAddresses) -> Iterator[JudgedRow]:
    normalised = email_addresses.normalise_all(
        [row.email for row in batch if isinstance(row, MemberRow)]
    )
    came_before = seen.add([each for each in normalised if isinstance(each, str)])
    found = iter(normalised)
    for row in batch:
        if isinstance(row, RejectedRecord):
            yield _rejected(row, row.code, row.reason)
            continue
        address = next(found)
        if isinstance(address, InvalidAddress):
            yield _rejected(row, "email.invalid", address.reason)
        elif address in came_before:
            yield _rejected(row, DUPLICATE_CODE, "The address came before in the same file.")
        else:
            came_before.add(address)
            line, _, name, tier, expiry, suppression, cells, extras = row
            paid_expiry = None if expiry is None else clock.iso(expiry)
            left = suppression.value if row.left else None
            # By place, not by name: half the time, for each row of a file.
            yield JudgedRow(line, address, name, tier, paid_expiry, left, None, None, cells, extras)


def _rejected(row: MemberRow | RejectedRecord, code: str, reason: str) -> JudgedRow:
    return JudgedRow(line=row.line, code=code, reason=reason, cells=row.cells)


# A file of more columns is read whole, and its result names the first.
MAX_COLUMNS_SHOWN = 500
MAX_COLUMN_NAME_CHARACTERS = 200

Sample = Sequence[Sequence[str]]


class ColumnPlan:
    """The meanings of a file's columns: another process finds the same, and makes no field anew."""

    def __init__(self, resources: Resources, task: MemberImport) -> None:
        self._resources = resources
        self._import_id = task.id
        # The keys of the fields that some column has, by the fields' ids as text.
        self.keys: dict[str, str] = {}

    def note_header(self, header: Sequence[str], sample: Sample) -> None:
        """Keep the columns before they are known, with some cells of each.

        The owner can say then which column has the addresses, if the file is refused for that.
        """
        with self._resources.unit_of_work() as uow:
            task = uow.session.get_one(MemberImport, self._import_id)
            if task.columns is None:
                task.columns = _described(ColumnLayout(header), 0, {})
                samples = ImportSamples.of(header, sample, (), {})
                shown_cells.keep(self._resources, task, samples)

    def find_fields(self, layout: ColumnLayout, sample: Sample) -> None:
        """Give columns of the layout to the owner's fields, and make new ones if the import asks.

        Raises ``import.mapping_field``, ``import.too_many_fields``.
        """
        with self._resources.unit_of_work() as uow:
            query = select(MemberImport).where(MemberImport.id == self._import_id)
            task = uow.session.scalars(query.with_for_update(key_share=True)).one()
            kept: Mapping[str, Any] = task.columns or {}
            # The fields that were found before, one that was retired since among them.
            ids: Mapping[str, int] = kept.get("fields", {})
            own = MemberField.id.in_([*ids.values()]), MemberField.user_id == task.user_id
            before = uow.session.scalars(select(MemberField).where(*own)) if ids else ()
            found = {field.id: field for field in before}
            for index, field_id in ids.items():
                if field_id in found and int(index) < len(layout.header):
                    layout.fields[int(index)] = found[field_id]
            covered = kept.get("covered", 0)
            # A dry run keeps no fields that it would make.
            after = 0 if task.dry_run and sample else covered
            made: dict[int, MemberField] = {}
            if after < len(layout.header):
                made = self._find(uow, task, layout, sample, after)
            creates = {int(index): type_ for index, type_ in kept.get("creates", {}).items()}
            creates |= {index: field.type for index, field in made.items()}
            self.keys = {str(field.id): field.key for field in layout.fields.values()}
            task.columns = _described(layout, max(covered, len(layout.header)), creates)

    def _find(
        self, uow: UnitOfWork, task: MemberImport, layout: ColumnLayout, sample: Sample, after: int
    ) -> dict[int, MemberField]:
        """Find the fields of the columns from this one; those that were, or would be, made."""
        columns = range(after, len(layout.header))
        living = fields.list_of(uow, task.user_id)
        cells.match_fields(layout, columns, living)
        if not task.create_fields:
            for index, (key, _) in layout.wanted.items():
                if index not in layout.fields:
                    raise errors.IMPORT_MAPPING_FIELD(key=key[:60])
            return {}
        others = [field for field in layout.fields.values() if field.id <= 0]
        keys = [field.key for field in (*living, *others)]
        new = cells.new_fields(layout, columns, keys, sample)
        room = max(0, MAX_FIELDS - len(living) - len(others))
        if len(new) > room and not after:
            shown = [repr(field.label[:60]) for field in new.values()][:MAX_COLUMN_NAMES_SHOWN]
            raise errors.IMPORT_TOO_MANY_FIELDS(count=len(new), room=room, names=", ".join(shown))
        # There may be no room for the last of the columns that come late; the result names them.
        new = dict(islice(new.items(), room))
        if not task.dry_run:
            for index, each in new.items():
                named = {"key": each.key, "label": each.label}
                new[index] = fields.create(uow, task.user_id, type=FieldType(each.type), **named)
        layout.fields.update(new)
        return new


def _described(layout: ColumnLayout, covered: int, creates: Mapping[int, str]) -> dict[str, Any]:
    """The plan as it is kept: what the owner is shown, and what reading the file again needs."""
    meanings = layout.meanings()
    names = [name[:MAX_COLUMN_NAME_CHARACTERS] for name in layout.header]
    ignored = (name for index, name in enumerate(names) if index not in meanings)
    return {
        "columns": [
            {
                "name": name,
                "becomes": meanings.get(index, IGNORED),
                **({"creates": creates[index]} if index in creates else {}),
            }
            for index, name in enumerate(names[:MAX_COLUMNS_SHOWN])
        ],
        "ignored_columns": [*islice(ignored, MAX_COLUMNS_SHOWN)],
        "count": len(names),
        "covered": covered,
        "fields": {str(index): field.id for index, field in layout.fields.items() if field.id > 0},
        "creates": {str(index): type_ for index, type_ in creates.items()},
    }


# Unfinished files that one process keeps open; each holds a reader and a set of addresses.
MAX_OPEN_FILES = 4
# A chunk of long rows has fewer of them.
MAX_CHUNK_CHARACTERS = 8_000_000


class FileSplit:
    """A file that is being split into chunks."""

    def __init__(self, resources: Resources, task: MemberImport) -> None:
        self._objects = resources.objects
        self._prefix = task.object_prefix
        self._key = bulk_files.data_key(resources, task)
        self._seen = SeenAddresses()
        # How many chunks were read, and how many rows.
        self.number = self.received = 0
        # The rows of the chunk that was read last; a file's rows are not held.
        self.rows: list[JudgedRow] = []
        self.chunk_bytes = 0
        self.is_complete = False
        # How many rows a request has; a file has to be read for that, and has None.
        self.total: int | None = None
        self.samples: ImportSamples | None = None
        self._problems = Problems()
        # The right encoding, if the file was read in a wrong one.
        self.encoding: str | None = None
        self.read_as = _read_as(task)
        order = DateOrder(task.date_order) if task.date_order else None
        self._forms = ColumnForms(task.column_forms, order)
        # Another encoding may make a rejected row readable.
        self._has_damaged_row = False
        self._text: DecodedText | None = None
        try:
            rows = self._open(resources, task)
        except EncodingUnclear as unclear:
            _keep_readings(resources, task, unclear)
            raise
        self._at_once = min(MAX_BATCH_ROWS, ROWS_PER_CHUNK)
        self._batches = judge_rows(rows, self._seen, self._at_once)

    def _open(self, resources: Resources, task: MemberImport) -> Iterator[AnyRow]:
        """Raises a ``DomainError`` with a code ``import.…`` for a file that can't be read."""
        if task.source == "members":
            # It was checked when it arrived.
            body = b"".join(bulk_files.stored_file(resources, task).stream())
            self.header, self.description = ["email", "name"], {"format": "request"}
            members = orjson.loads(body)["members"]
            self.total = len(members)
            return _rows_of_request(members)
        stored = ranged_file(bulk_files.stored_file(resources, task))
        if task.kind != ImportKind.MEMBERS:
            source = as_lines(stored, task.size)
            reader = open_rows(source, task.filename, task.mapping, encoding=task.encoding)
            self._text = reader.text
            self.header, self.description = reader.header, dataclasses.asdict(reader.description)
            self.samples = ImportSamples((), ())
            return suppressed(reader, reader.header, ImportKind(task.kind))
        plan = ColumnPlan(resources, task)
        note = plan.note_header if task.dry_run else pass_over
        find = plan.find_fields
        given = stored, task.filename, task.mapping, find, note
        reader = open_rows(*given, forms=self._forms, encoding=task.encoding)
        self._text = reader.text
        self.header, self.description = reader.header, dataclasses.asdict(reader.description)
        rows = iter(reader)
        first = list(islice(rows, MAX_ROWS_SHOWN)) if task.dry_run else []
        self.samples = ImportSamples.of(reader.header, reader.sample, first, plan.keys)
        return chain(first, rows)

    def read_next(self, *, store: bool) -> int:
        """Read one more chunk, and ``store`` it unless another process has stored it already.

        Returns the number of its rows, 0 at the end of the file.
        """
        rows: list[JudgedRow] = []
        characters = 0
        while len(rows) + self._at_once <= ROWS_PER_CHUNK and characters < MAX_CHUNK_CHARACTERS:
            batch, more = next(self._batches, ([], 0))
            if not batch:
                self.is_complete = True
                break
            rows += batch
            characters += more
        # A request's chunk is applied at once, a file's is stored.
        is_of_request = self.total is not None
        encoded = b"" if is_of_request or not rows else encode(rows)
        if rows and store:
            key = chunk_key(self._prefix, self.number)
            self._objects.put(key, seal(encoded, self._key, key), "application/octet-stream")
        self._has_damaged_row |= any(row.code in _OF_DAMAGED_ROWS for row in rows)
        if self.samples is not None:
            self._problems.note(rows)
            if not batch:
                self.samples = self.samples._replace(problems=self._problems.groups())
        self.rows = rows if is_of_request else []
        self.chunk_bytes = len(encoded)
        self.number += bool(rows)
        self.received += len(rows)
        return len(rows)

    def settle(
        self, resources: Resources, task: MemberImport
    ) -> tuple[dict[str, str], bool, DomainError | None]:
        """Return how the columns write dates and numbers, and whether the file was read so.

        Both are known once the whole file has been read. The error says that the owner has to name
        the order of dates or the encoding. A file in another encoding than it was read in is not
        read so either; then ``encoding`` is the right one.
        """
        if not self.is_complete:
            return {}, True, None
        try:
            encoding = self._text.settled_encoding() if self._text else None
            if self._text and encoding and not self._is_read_in(encoding):
                self.encoding = encoding
                return {}, False, None
            settled = self._forms.settled(self.header)
        except DomainError as error:
            if isinstance(error, EncodingUnclear):
                _keep_readings(resources, task, error)
            return {}, True, error
        return settled, not self._forms.differs(settled), None

    def _is_read_in(self, encoding: str) -> bool:
        """Return whether the rows are the same as in this encoding."""
        assert self._text is not None
        if encoding == self._text.encoding:
            return True
        self.description = {**self.description, "encoding": encoding}
        return self._text.reads_like(encoding) and not self._has_damaged_row

    def close(self) -> None:
        self._seen.close()


# Another encoding may make rows with these codes readable.
_OF_DAMAGED_ROWS = frozenset({"encoding.invalid", "row.unreadable"})


def _keep_readings(resources: Resources, task: MemberImport, unclear: EncodingUnclear) -> None:
    """Keep some rows in each possible encoding, so that the owner can choose one."""
    with resources.unit_of_work() as uow:
        kept = uow.session.get_one(MemberImport, task.id)
        readings = [{"encoding": name, "rows": rows} for name, rows in unclear.readings.items()]
        shown_cells.keep(resources, kept, ImportSamples((), (), readings=readings))


def _rows_of_request(members: Sequence[Mapping[str, str | None]]) -> Iterator[AnyRow]:
    for line, member in enumerate(members, start=1):
        cells = email, name = member["email"] or "", member.get("name") or ""
        status = SuppressionStatus.WANTED
        # By place, not by name, which takes longer: address, name, tier, expiry.
        yield MemberRow(line, email.strip(), tidy_name(name), None, None, status, cells)


def _read_as(task: MemberImport) -> tuple[Any, ...]:
    """Return the options that decide which chunks the file makes."""
    options = task.kind, task.mapping, task.dry_run, task.create_fields
    return *options, task.date_order, task.column_forms, task.encoding


def note_forms(
    task: MemberImport, forms: Mapping[str, str], encoding: str | None, *, read_again: bool
) -> None:
    """Keep how the columns write dates and numbers, for the owner and for the next reading.

    Args:
        encoding: the right encoding, if the file was read in a wrong one.
        read_again: true if the file was read in a wrong way. Then its chunks are made again.
    """
    task.encoding = encoding or task.encoding
    task.column_forms = dict(forms)
    if read_again:
        task.chunks = task.chunk_bytes = task.received = 0
        task.description = None
    if task.columns is not None:
        found = [
            {**column, "written": forms[str(index)]} if str(index) in forms else column
            for index, column in enumerate(task.columns["columns"])
        ]
        task.columns = {**task.columns, "columns": found}


_open: dict[int, FileSplit] = {}


def take_split(resources: Resources, task: MemberImport) -> FileSplit:
    """The split that this process kept, or a new one: at the first chunk not stored, or before it.

    Raises a ``DomainError`` with a code ``import.…`` for a file that can't be read.
    """
    split = _open.pop(task.id, None)
    # A dry run's file may be read again by other options (``records.read_again``).
    is_of_before = split is not None and split.read_as != _read_as(task)
    if split is not None and (split.number > task.chunks or is_of_before):
        split.close()
        split = None
    return split or FileSplit(resources, task)


def kept_splits() -> list[int]:
    """The ids of the imports whose splits this process keeps."""
    return list(_open)


def keep_split(task: MemberImport, split: FileSplit, waiting: Collection[int]) -> bool:
    """Keep this split open for its job's next turn, unless ``MAX_OPEN_FILES`` are kept already.

    ``waiting``: the imports whose kept splits stay. If newcomers replaced them, many imports at
    once would replace each other for ever.
    """
    for import_id in _open.keys() - set(waiting):
        _open.pop(import_id).close()
    if len(_open) < MAX_OPEN_FILES:
        _open[task.id] = split
        return True
    split.close()
    return False
