"""Prepares the page of an import, and reads which role the owner chose for each column.

The role of a column states what the column contains, such as the name or the e-mail address.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from api.console.console_display import format_count, format_field_value
from api.console.imports.status_values import StatusValue, list_status_values
from api.console.requests import ConsoleRequest
from api.console.typed_forms import build_field_error
from core import clock
from core.errors import DomainError
from core.errors.imports import IMPORT_DATE_ORDER_NEEDED, IMPORT_NO_ROWS
from models import FINISHED, Job, MemberField, MemberImport
from services.jobs import records as jobs
from services.jobs.records import Progress
from services.subscriptions import fields, lists
from services.subscriptions.imports import column_layout, endings, field_columns, records
from services.subscriptions.imports.column_forms import DecimalMark
from services.subscriptions.imports.column_layout import (
    CONSENT_PARTS,
    CONSENT_PREFIX,
    FIELD_PREFIX,
    IGNORED,
    ConsentSubject,
)
from services.subscriptions.imports.dates import DateOrder
from services.subscriptions.imports.encodings import ENCODINGS
from services.subscriptions.imports.samples import add_samples
from services.subscriptions.imports.undo import IMPORT_UNDO

COLUMNS_ON_PAGE = 20
MAX_NAME_CHARACTERS = 80
MAX_LEFT_OUT_NAMES = 5
_MINUTE_SECONDS = 60
_HOUR_SECONDS = 3_600
# Choices in a column's select box that aren't roles.
IGNORE = "ignore"
NEW_FIELD = "new"
AS_RECOGNISED = ""
FIELD_TYPES = dict(
    zip(field_columns.NEW_TYPES, ("text", "number", "date", "yes or no"), strict=True)
)
# Maps each column option that creates a member field to the option's label.
_TYPED_FIELDS = {
    f"{NEW_FIELD}:{type_}": f"Create a field ({words})" for type_, words in FIELD_TYPES.items()
}
DATE_ORDERS = (
    ("", "Detect automatically"),
    (DateOrder.DAY_FIRST.value, "Day first: 31/12/2025"),
    (DateOrder.MONTH_FIRST.value, "Month first: 12/31/2025"),
)
_FORMAT_LABELS = {
    DateOrder.DAY_FIRST: "Dates with the day first",
    DateOrder.MONTH_FIRST: "Dates with the month first",
    DecimalMark.POINT: "Numbers with a decimal point",
    DecimalMark.COMMA: "Numbers with a decimal comma",
}
# The roles that an owner may choose for more than one column of a file.
_REPEATABLE_ROLES = (
    *(IGNORE, NEW_FIELD, *_TYPED_FIELDS, AS_RECOGNISED, "tags", "tier", *ConsentSubject),
    *("first_name", "middle_name", "last_name"),
)
_ROLE_LABELS = {
    "email": "E-mail address",
    "name": "Name",
    "first_name": "First name",
    "middle_name": "Middle name",
    "last_name": "Last name",
    "tier": "Tier",
    "paid_expiry": "Paid until",
    "status": "Status",
    "subscribed": "Subscribed (yes or no)",
    "unsubscribed": "Opted out (yes or no)",
    "confirmed": "Confirmed (yes or no)",
    "tags": "Tags",
    "joined_at": "Joined on",
    "consent.at": "Consent: date",
    "consent.how": "Consent: method",
    "consent.ip": "Consent: IP address",
    "consent.url": "Consent: URL",
    "consent.wording": "Consent: wording",
    "consent.confirmed_at": "Consent: confirmed on",
    "consent.confirmed_ip": "Consent: confirmed from IP",
    IGNORED: "Don’t import",
}
# Groups the roles in a column's select box.
_ROLE_GROUPS = {
    "Person": ("email", "name", "first_name", "middle_name", "last_name"),
    "Membership": ("tags", "joined_at", "tier", "paid_expiry"),
    "Permission to send mail": ("status", "subscribed", "unsubscribed", "confirmed"),
    "Consent": tuple(CONSENT_PREFIX + part for part in CONSENT_PARTS),
}
# Labels for the reasons why rows weren't added, in the order in which the page shows them.
VERDICT_LABELS = {
    "already": "already members",
    "opted_out": "opted out",
    "invalid": "invalid",
    "duplicate": "duplicates in the file",
    "denied": "on a deny list",
    "over_quota": "over your plan’s limit",
}


@dataclass(frozen=True)
class ColumnChoice:
    """A column of an imported file and its role.

    Attributes:
        examples: sample cells of the column.
        becomes: the role that the dry run recognised, or several roles separated by commas.
        creates: the type of the member field that the import creates for the column, or ``None``.
        written: the label of the column's date or number format, or ``None`` if unknown.
        chosen: the choice in the column's select box, such as a role or ``ignore``.
        meaning: the label of the recognised role, or the labels of several roles.
        has_data: whether a cell of the column isn't blank.
        ignored_opt_outs: the number of opt-outs in an ignored column, or ``None`` if the import
            reads the column.
    """

    index: int
    name: str
    examples: Sequence[str]
    becomes: str
    creates: str | None
    written: str | None
    chosen: str
    meaning: str
    has_data: bool
    ignored_opt_outs: int | None = None

    @property
    def box(self) -> str:
        return f"column_{self.index}"

    @property
    def label(self) -> str:
        return self.name.strip()[:MAX_NAME_CHARACTERS] or f"Column {self.index + 1}"

    @property
    def recognised(self) -> str | None:
        """Return the label of the column's recognised role, or ``None``."""
        if self.creates is not None:
            return None
        if self.becomes == IGNORED:
            return "Detect automatically" if self.chosen == AS_RECOGNISED else None
        return self.meaning

    @property
    def is_left_out(self) -> bool:
        """Return whether the import ignores the column although the column has data."""
        return self.becomes == IGNORED and self.has_data


def build_column_choices(
    task: MemberImport, columns: Sequence[Mapping[str, Any]], fields: Sequence[MemberField]
) -> list[ColumnChoice]:
    """Return the columns of a dry run, each with the choice in its select box.

    If a dry run stopped at an ambiguous column, the owner only has to choose the role of this
    column.

    Args:
        columns: the columns in the result of the dry run.
    """
    names = [str(column["name"]) for column in columns]
    is_recognised = any(column["becomes"] != IGNORED for column in columns)
    labels = find_labels(columns, fields)
    own_roles = {FIELD_PREFIX + field.key for field in fields}
    chosen_roles = {}
    for name, role in (task.mapping or {}).items():
        try:
            chosen_roles[column_layout.find_column(names, name)] = role
        except DomainError:
            # Ignore a choice for a column that isn't in the file, because the dry run reports the
            # missing column.
            continue
    choices = []
    for index, column in enumerate(columns):
        becomes = str(column["becomes"])
        creates = column.get("creates")
        if index in chosen_roles:
            role = chosen_roles[index]
            name, _, type_ = role.partition(":")
            is_new = role.startswith(FIELD_PREFIX) and name not in own_roles
            choice = (f"{NEW_FIELD}:{type_}" if type_ else NEW_FIELD) if is_new else name
        elif creates is not None:
            choice = NEW_FIELD
        else:
            choice = IGNORE if becomes == IGNORED and is_recognised else AS_RECOGNISED
        examples = column.get("examples", ())
        format_label = _FORMAT_LABELS.get(column.get("written", ""))
        choices.append(
            ColumnChoice(
                *(index, names[index], examples, becomes, creates, format_label, choice),
                meaning=", ".join(_describe_role(role, labels) for role in becomes.split(", ")),
                has_data=column.get("has_data", bool(examples)),
                ignored_opt_outs=column.get("ignored_opt_outs"),
            )
        )
    return choices


def find_labels(
    columns: Sequence[Mapping[str, Any]], fields: Sequence[MemberField]
) -> dict[str, str]:
    """Map the keys of fields to their labels, including the fields that the import creates.

    ``columns`` contains the columns in the result of a dry run.
    """
    new_fields = {
        str(column["becomes"]).removeprefix(FIELD_PREFIX): str(column["name"]).strip()
        for column in columns
        if column.get("creates") is not None
    }
    return new_fields | {field.key: field.label for field in fields}


def list_roles(fields: Sequence[MemberField]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the choices in a column's select box, by the label of their group."""
    groups = [
        (label, [(role, _ROLE_LABELS[role]) for role in roles])
        for label, roles in _ROLE_GROUPS.items()
    ]
    own_fields = [(FIELD_PREFIX + field.key, field.label) for field in fields]
    new_fields = [(NEW_FIELD, "Create a field"), *_TYPED_FIELDS.items()]
    return [*groups, ("Your fields", own_fields), ("New field", new_fields)]


def read_column_choices(form: Mapping[str, str], choices: Sequence[ColumnChoice]) -> list[str]:
    """Return the submitted choice for each column.

    If the form contains no select box for a column, the column's previous choice is returned.
    Raises ``body.invalid`` if two columns have the same role and the role may occur only once.
    """
    values = [form.get(each.box, each.chosen) for each in choices]
    seen: set[str] = set()
    for choice, value in zip(choices, values, strict=True):
        if value in seen and value not in _REPEATABLE_ROLES:
            raise build_field_error(choice.box, "You already chose this for another column.")
        seen.add(value)
    return values


def build_mapping(
    choices: Sequence[ColumnChoice], values: Sequence[str], fields: Sequence[MemberField]
) -> dict[str, str]:
    names = [each.name for each in choices]
    keys = {field.key for field in fields}
    mapping: dict[str, str] = {}
    for each, value in zip(choices, values, strict=True):
        if value == AS_RECOGNISED:
            continue
        role = value
        if is_new_field(value):
            key = each.becomes.removeprefix(FIELD_PREFIX)
            if each.creates is None:
                key = field_columns.find_free_key(each.name, keys)
            keys.add(key)
            role = FIELD_PREFIX + key + value.removeprefix(NEW_FIELD)
        try:
            has_unique_name = (
                bool(each.name.strip())
                and column_layout.find_column(names, each.name) == each.index
            )
        except DomainError:
            has_unique_name = False
        mapping[each.name if has_unique_name else str(each.index)] = role
    return mapping


def is_new_field(choice: str) -> bool:
    return choice == NEW_FIELD or choice in _TYPED_FIELDS


def describe_preview_row(row: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Return a row of a dry run's preview in the form in which the page shows it."""
    joined_at = row.get("joined_at")
    values = row.get("fields", {})
    return {
        **row,
        "joined": datetime.fromisoformat(joined_at).date() if joined_at else None,
        "fields": [(labels.get(key, key), format_field_value(values[key])) for key in values],
    }


def _describe_role(role: str, labels: Mapping[str, str]) -> str:
    if role.startswith(FIELD_PREFIX):
        key = role.removeprefix(FIELD_PREFIX)
        return f"Field: {labels.get(key, key)}"
    return _ROLE_LABELS.get(role, role.removeprefix(CONSENT_PREFIX).replace("_", " ").capitalize())


@dataclass(frozen=True)
class ImportView:
    """The data shown on the page of an import.

    A single query reads the status and the counts of the import, so that they are consistent.

    Attributes:
        job: the job that runs the import, or ``None`` if the import has ended.
        undo: the latest job that undoes the import, or ``None``.
        choices: the columns of a dry run with their roles. After a real import, ``choices`` is
            empty.
        status_values: the consent values of the file.
        preview: the members that the first rows of the file would create.
        problems: the invalid cells, grouped by column and violated rule.
        readings: sample rows in each possible encoding. The sample rows are empty if the encoding
            is certain.
        fields: the owner's member fields.
    """

    task: MemberImport
    list_title: str
    job: Job | None
    undo: Job | None
    choices: Sequence[ColumnChoice] = ()
    status_values: Sequence[StatusValue] = ()
    preview: Sequence[Mapping[str, Any]] = ()
    problems: Sequence[Mapping[str, Any]] = ()
    readings: Sequence[Mapping[str, Any]] = ()
    fields: Sequence[MemberField] = ()

    @property
    def is_running(self) -> bool:
        return self.task.status == "running"

    @property
    def is_undoing(self) -> bool:
        return self.undo is not None and self.undo.status not in FINISHED

    @property
    def is_live(self) -> bool:
        return self.is_running or self.is_undoing

    @property
    def undo_stopped(self) -> bool:
        """Return whether an undo of the import failed or was cancelled."""
        has_begun = self.undo is not None and self.task.undone_at is None
        return has_begun and not self.is_undoing

    @property
    def not_added(self) -> int:
        return sum(getattr(self.task, verdict) for verdict in VERDICT_LABELS)

    @property
    def has_rejects(self) -> bool:
        """Return whether a file with the rows that weren't added exists."""
        has_rows = self.not_added > 0 or self.task.left_out > 0
        return has_rows and self.task.files_removed_at is None

    @property
    def can_be_undone(self) -> bool:
        has_ended = self.task.status != "running" and not self.task.dry_run
        return (
            has_ended and not self.is_undoing and IMPORT_UNDO.available_until(self.task) is not None
        )

    @property
    def date_order_matters(self) -> bool:
        """Return whether the owner must choose the order of day and month in dates."""
        is_asked = self.task.error is not None and self.task.error["code"] == (
            IMPORT_DATE_ORDER_NEEDED.code
        )
        return is_asked or self.task.date_order is not None

    @property
    def encoding_matters(self) -> bool:
        """Return whether the owner can choose the encoding of the file.

        The encoding of a Unicode file is certain, so the owner can't change it.
        """
        encoding = (self.task.description or {}).get("encoding", "utf-8")
        return (
            bool(self.readings) or self.task.encoding is not None or not encoding.startswith("utf")
        )

    @property
    def encoding_words(self) -> str | None:
        """Return a name for the file's encoding, or ``None`` for Unicode."""
        return ENCODINGS.get((self.task.description or {}).get("encoding", ""))

    @property
    def sheet(self) -> str:
        """Return the name of the sheet that was read, or "" if the file has only one sheet."""
        description = self.task.description or {}
        return (description.get("sheet") or "") if self.sheet_names else ""

    @property
    def sheet_names(self) -> list[str]:
        """Return the names of a workbook's sheets if the owner can choose between them."""
        sheets = (self.task.description or {}).get("sheets") or ()
        return [sheet["name"] for sheet in sheets] if len(sheets) > 1 else []

    def list_sheet_choices(self) -> list[tuple[str, str]]:
        """Return the name and the label of each sheet that the owner can choose."""
        sheets = (self.task.description or {}).get("sheets") or ()
        hidden_names = {sheet["name"] for sheet in sheets if sheet["hidden"]}
        return [
            (name, f"{name} (hidden)" if name in hidden_names else name)
            for name in self.sheet_names
        ]

    @property
    def is_broken(self) -> bool:
        """Return whether the import failed because of an internal error, and can be resumed."""
        if self.task.status != "failed" or self.task.error is None:
            return False
        return str(self.task.error["code"]).startswith("job.")

    @property
    def is_refused(self) -> bool:
        """Return whether a dry run failed because of the file itself.

        The owner needs another file, because no choice on the page changes the result. If the
        error is about columns, consent values, dates or the encoding, the owner can correct the
        choices instead.
        """
        error = self.task.error
        if not self.task.dry_run or self.task.status != "failed" or error is None:
            return False
        has_choices = (
            bool(self.choices)
            or bool(self.status_values)
            or self.date_order_matters
            or self.encoding_matters
        )
        has_no_rows = error["code"] == IMPORT_NO_ROWS.code
        return not self.is_broken and (has_no_rows or not has_choices)

    @property
    def file_kept_until(self) -> datetime | None:
        """Return when the file of a dry run will be deleted, or ``None`` if there is no file.

        Until the file is deleted, the owner can repeat the dry run or import the file.
        """
        ended_at = self.task.finished_at
        if not self.task.dry_run or ended_at is None or self.is_broken:
            return None
        expires_at = ended_at + endings.DRY_RUN_FILE_RETENTION
        is_kept = self.task.status != "cancelled" and self.task.source == "file"
        return expires_at if is_kept and expires_at > clock.now() else None

    @property
    def left_out_columns(self) -> str | None:
        """Return a sentence about the columns with data that the import ignores, or ``None``."""
        names = [each.label for each in self.choices if each.is_left_out]
        if not names:
            return None
        shown_names = ", ".join(names[:MAX_LEFT_OUT_NAMES])
        more = len(names) - MAX_LEFT_OUT_NAMES
        verb = "is" if len(names) == 1 else "are"
        count = format_count(len(names), "column with data", "columns with data")
        return f"{count} {verb} left out: {shown_names}{f' and {more} more' if more > 0 else ''}."

    @property
    def verdicts(self) -> list[tuple[int, str]]:
        counts = ((getattr(self.task, name), words) for name, words in VERDICT_LABELS.items())
        return [(count, words) for count, words in counts if count]

    @property
    def progress(self) -> Progress | None:
        worker = self.undo if self.is_undoing else self.job
        return None if worker is None else jobs.measure_progress(worker)

    @property
    def time_left(self) -> str | None:
        progress = self.progress
        if progress is None or progress.eta_seconds is None:
            return None
        seconds = progress.eta_seconds
        if seconds < _MINUTE_SECONDS:
            return f"about {max(round(seconds), 1)} s"
        if seconds < _HOUR_SECONDS:
            return f"about {round(seconds / _MINUTE_SECONDS)} min"
        return f"about {seconds / _HOUR_SECONDS:.1f} h"

    @property
    def job_ids(self) -> list[int]:
        return [each.id for each in (self.job, self.undo) if each is not None]


def read_view(console: ConsoleRequest, import_id: int) -> ImportView:
    """Return the data for the page about one of the caller's imports.

    The data of the page contains sample rows of the file, unless the samples were deleted.
    """
    resources = console.state.resources
    with console.unit_of_work() as uow:
        task = records.get_import(uow, console.caller, import_id)
        title = lists.read_titles(uow, [task.list_id])[task.list_id]
        job = records.find_job(uow, task) if task.status == "running" else None
        undo = records.find_undo_job(uow, task)
        # Read the import again after reading its job, so that the last changes of a job that just
        # ended are included. A single transaction stores an import job's last changes to the import
        # and marks the job as ended.
        uow.session.refresh(task)
        own_fields = fields.list_fields(uow, console.user_id) if task.dry_run else []
    view = ImportView(task, title, job, undo, fields=own_fields)
    if view.is_live:
        return view
    result = add_samples(resources, endings.build_result(task))
    labels = find_labels(result.get("columns", ()), own_fields)
    return replace(
        view,
        choices=build_column_choices(task, result.get("columns", ()), own_fields)
        if task.dry_run
        else (),
        status_values=list_status_values(task, result),
        preview=[describe_preview_row(row, labels) for row in result.get("preview", ())],
        problems=result.get("problems", ()),
        readings=[
            {**each, "words": ENCODINGS[each["encoding"]]} for each in result.get("readings", ())
        ],
    )
