"""Opens the uploaded file of an import, and creates the readers of the file's content."""

import io
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from core.errors import DomainError, TransientError
from models import ImportKind, MemberImport
from services.jobs.lease import Lease
from services.subscriptions import bulk_files
from services.subscriptions.imports.columns.column_forms import ColumnForms
from services.subscriptions.imports.columns.column_plan import ColumnPlan
from services.subscriptions.imports.columns.consent_interpreter import ConsentInterpreter
from services.subscriptions.imports.columns.dates import DateOrder
from services.subscriptions.imports.columns.samples import (
    MAX_ROWS_SHOWN,
    AnyRow,
    ImportSamples,
    store_samples,
)
from services.subscriptions.imports.columns.suppression_files import SuppressionReader
from services.subscriptions.imports.formats.containers import is_workbook, open_ranged_file
from services.subscriptions.imports.formats.encoding_detection import EncodingUnclear
from services.subscriptions.imports.formats.formats import (
    RowReader,
    ignore_columns,
    open_member_rows,
    open_suppression_rows,
)
from services.subscriptions.imports.formats.json_lines_reader import convert_document
from services.subscriptions.imports.formats.workbooks.reading_slots import MemoryLimit, ReadingSlot
from services.subscriptions.imports.formats.workbooks.workbook import Workbook
from storage.resources import Resources

# A workbook of at most this size is first read with little memory.
_MAX_SMALL_WORKBOOK_BYTES = 2 * 1024**2


@dataclass(frozen=True)
class OpenedFile:
    """An imported file that is open for reading, and the detectors that analyse the file's content.

    Attributes:
        statuses: the detector of consent columns in a members file, or of columns with suppression
            reasons in a suppression file.
        may_mix_opt_outs: whether the file may contain both members and opt-outs.
    """

    reader: RowReader
    rows: Iterator[AnyRow]
    samples: ImportSamples
    forms: ColumnForms
    statuses: ConsentInterpreter | SuppressionReader
    may_mix_opt_outs: bool
    interpreted_values: Callable[[], Mapping[str, Any]]


def open_source(
    resources: Resources, lease: Lease, task: MemberImport
) -> Generator[None, None, io.BufferedReader | Workbook]:
    """Return the stored file of an import, or the workbook in the file.

    The generator yields between the steps that open a workbook. While other workbooks must be read
    first, ``lease.is_waiting`` is true. The caller must close the returned object.
    """
    stored = open_ranged_file(bulk_files.open_stored_file(resources, task))
    if not is_workbook(stored):
        return stored
    # An earlier attempt may have failed because the workbook needs more memory.
    is_retry = lease.retries + lease.crashes > 0
    if task.size <= _MAX_SMALL_WORKBOOK_BYTES and not is_retry:
        try:
            return (yield from _open_workbook(resources, lease, task, stored, MemoryLimit.LOW))
        except (DomainError, TransientError):
            # Too little memory can look like a damaged workbook.
            stored.seek(0)
    return (yield from _open_workbook(resources, lease, task, stored, MemoryLimit.FULL))


def _open_workbook(
    resources: Resources,
    lease: Lease,
    task: MemberImport,
    stored: io.BufferedReader,
    limit: MemoryLimit,
) -> Generator[None, None, Workbook]:
    slot = ReadingSlot(limit, resources.settings.database_url.get_secret_value())
    workbook = Workbook(stored, task.size, slot, limit)
    try:
        while not slot.acquire():
            lease.is_waiting = True
            yield
        lease.is_waiting = False
        yield from workbook.open()
        with _record_sheets_of_refused_file(resources, task, workbook):
            yield from workbook.choose_sheet(task.sheet, task.mapping)
    except BaseException:
        workbook.close()
        raise
    return workbook


def open_file(
    resources: Resources, task: MemberImport, source: io.BufferedReader | Workbook
) -> OpenedFile:
    open_kind = _open_members if task.kind == ImportKind.MEMBERS else _open_suppressions
    try:
        with _record_sheets_of_refused_file(resources, task, source):
            return open_kind(resources, task, source)
    except EncodingUnclear as unclear:
        # Store some rows, decoded with each possible encoding, so that the owner can choose an
        # encoding.
        with resources.unit_of_work() as uow:
            locked = uow.session.get_one(MemberImport, task.id)
            samples = ImportSamples((), (), readings=readings_by_encoding(unclear))
            store_samples(resources, locked, samples)
        raise


def readings_by_encoding(unclear: EncodingUnclear) -> list[dict[str, Any]]:
    return [{"encoding": name, "rows": rows} for name, rows in unclear.readings.items()]


@contextmanager
def _record_sheets_of_refused_file(
    resources: Resources, task: MemberImport, source: io.BufferedReader | Workbook
) -> Iterator[None]:
    """Store the names of a workbook's sheets if the file is refused. The owner can then choose
    another sheet.
    """
    try:
        yield
    except DomainError:
        if isinstance(source, Workbook):
            with resources.unit_of_work() as uow:
                stored = uow.session.get_one(MemberImport, task.id)
                stored.description = {"format": "xlsx", "header": [], **source.describe()}
        raise


def _open_members(
    resources: Resources, task: MemberImport, source: io.BufferedReader | Workbook
) -> OpenedFile:
    forms = _create_column_forms(task)
    readings = ConsentInterpreter(task.consent_columns, task.status_values)
    plan = ColumnPlan(resources, task)
    reader = open_member_rows(
        source,
        task.filename,
        task.mapping,
        plan.find_fields,
        plan.store_header if task.dry_run else ignore_columns,
        forms=forms,
        consent=readings,
        encoding=task.encoding,
    )
    rows = iter(reader)
    first_rows = list(islice(rows, MAX_ROWS_SHOWN)) if task.dry_run else []

    def interpreted_values() -> dict[str, Any]:
        return {
            "values": readings.list_values_by_column(),
            "meanings": readings.list_meanings_by_column(),
            "ignored_opt_outs": readings.count_ignored_opt_outs(),
            "ignored_reason": readings.explain_unused_columns(),
            "unknown": readings.list_unknown_values(reader.header),
        }

    return OpenedFile(
        reader=reader,
        rows=chain(first_rows, rows),
        samples=ImportSamples.collect(reader.header, reader.sample, first_rows, plan.keys),
        forms=forms,
        statuses=readings,
        may_mix_opt_outs=True,
        interpreted_values=interpreted_values,
    )


def _open_suppressions(
    resources: Resources, task: MemberImport, source: io.BufferedReader | Workbook
) -> OpenedFile:
    reader = open_suppression_rows(
        source if isinstance(source, Workbook) else convert_document(source, task.size),
        task.filename,
        task.mapping,
        encoding=task.encoding,
    )
    suppressions = SuppressionReader(
        reader.header,
        reader.sample,
        ImportKind(task.kind),
        mapping=task.mapping,
        status_values=task.status_values,
        earlier_decisions=task.consent_columns,
    )
    return OpenedFile(
        reader=reader,
        rows=suppressions.read(reader),
        samples=ImportSamples((), ()),
        forms=_create_column_forms(task),
        statuses=suppressions,
        may_mix_opt_outs=False,
        interpreted_values=lambda: {"unknown": suppressions.list_unknown_values()},
    )


def _create_column_forms(task: MemberImport) -> ColumnForms:
    order = DateOrder(task.date_order) if task.date_order else None
    return ColumnForms(task.column_forms, order)
