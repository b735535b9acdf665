"""Prepares the data for the page of an import."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from api.console.assets import CONSOLE_PATH
from api.console.console_display import (
    format_count,
    format_distance,
    format_duration,
    format_field_value,
    format_sentence,
)
from api.console.imports.column_choices import ColumnChoice, build_column_choices, find_labels
from api.console.imports.status_values import (
    StatusValue,
    ValueGroup,
    group_values,
    list_status_values,
)
from api.console.requests import ConsoleRequest
from core import clock
from core.errors.imports import IMPORT_DATE_ORDER_NEEDED, IMPORT_NO_ROWS
from core.errors.jobs import JOB_ROWS_FAILED
from models import FINISHED, ImportKind, Job, MemberField, MemberImport
from services.jobs import records as jobs
from services.jobs.records import Progress
from services.subscriptions import fields, lists
from services.subscriptions.imports import endings, records
from services.subscriptions.imports.columns.dates import DateOrder
from services.subscriptions.imports.columns.samples import add_samples
from services.subscriptions.imports.formats.encodings import ENCODINGS
from services.subscriptions.imports.undo import IMPORT_UNDO
from storage.unit_of_work import UnitOfWork

COLUMNS_ON_PAGE = 20
MAX_LEFT_OUT_NAMES = 5
_MINUTE_SECONDS = 60
_HOUR_SECONDS = 3_600
# How often the page shows during the first minute how long a job has been running.
_ACTIVITY_STEP_SECONDS = 5
DATE_ORDERS = (
    ("", "Detect automatically"),
    (DateOrder.DAY_FIRST.value, "Day first: 31/12/2025"),
    (DateOrder.MONTH_FIRST.value, "Month first: 12/31/2025"),
)
# Labels for the reasons why rows weren't added, in the order in which the page shows them.
VERDICT_LABELS = {
    "already": "already members",
    "opted_out": "opted out",
    "invalid": "invalid",
    "duplicate": "duplicates in the file",
    "denied": "on a deny list",
    "over_quota": "over your plan’s limit",
}

# The rows with these verdicts are neither members nor opt-outs.
_REJECTIONS = ("invalid", "duplicate", "denied", "over_quota")
_ROWS_SECTION = "rows"
_VALUES_SECTION = "values"
_PREVIEW_SECTION = "first"

# The reasons why rows with these verdicts weren't added. The problems of a file contain the reasons
# for invalid rows.
_REASONS = {
    "already": "The person is already on the list",
    "opted_out": "The person opted out earlier",
    "duplicate": "Another row of the file has the same address",
    "denied": "The address is on a deny list",
    "over_quota": "Your plan’s limit for members is reached",
}

# Labels for the addresses that get no more mail because of an import. Each kind of import has a
# label for one address, and a label for several addresses.
_BLOCKED_LABELS = {
    ImportKind.SUPPRESSIONS: ("blocked address", "blocked addresses"),
    ImportKind.BOUNCES: ("bounced address", "bounced addresses"),
    ImportKind.COMPLAINTS: ("address with a complaint", "addresses with complaints"),
}


class ResultPart(NamedTuple):
    """A part of the sentence about an import's result, such as ``374 new``.

    ``section``: the id of the page's section that shows the rows.
    """

    text: str
    section: str


def describe_result(task: MemberImport) -> list[ResultPart]:
    """Return the parts of the sentence about the rows of an import, without empty parts."""
    if task.kind != ImportKind.MEMBERS:
        one, many = _BLOCKED_LABELS[ImportKind(task.kind)]
        blocked = format_count(task.opted_out, one, many)
        parts = [ResultPart(f"No more mail to {blocked}", _ROWS_SECTION)]
    else:
        parts = [ResultPart(f"{task.added:,} new", _PREVIEW_SECTION)]
        unchanged = task.already - task.updated
        if task.updated:
            parts.append(ResultPart(f"{task.updated:,} updated", _ROWS_SECTION))
        if unchanged > 0:
            parts.append(ResultPart(f"{unchanged:,} already on the list", _ROWS_SECTION))
        if task.opted_out:
            opt_outs = format_count(task.opted_out, "opt-out")
            parts.append(ResultPart(f"{opt_outs} kept out", _VALUES_SECTION))
    rejected = sum(getattr(task, verdict) for verdict in _REJECTIONS)
    if rejected:
        parts.append(ResultPart(f"{rejected:,} not imported", _ROWS_SECTION))
    return parts


def get_import_name(task: MemberImport) -> str:
    """Return the file name, or how many members an API request contained."""
    if task.filename:
        return task.filename
    members = format_count(task.received, "member") if task.received else "Members"
    return f"{members} from an API request"


@dataclass(frozen=True)
class ImportView:
    """The data shown on the page of an import.

    A single query reads the status and the counts of the import, so that they are consistent.

    Attributes:
        job: the job that runs the import, or ``None`` if the import has ended.
        undo: the latest job that undoes the import, or ``None``.
        choices: the columns of a dry run with their roles. Empty after a real import.
        preview: the members that the first rows of the file would create.
        value_groups: the consent values to which the owner can't assign a status.
        problems: the invalid cells, grouped by column and violated rule.
        readings: sample rows in each possible encoding. Empty if the encoding is certain.
    """

    task: MemberImport
    list_title: str
    job: Job | None
    undo: Job | None
    choices: Sequence[ColumnChoice] = ()
    status_values: Sequence[StatusValue] = ()
    value_groups: Sequence[ValueGroup] = ()
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
    def is_cancelling(self) -> bool:
        worker = self.undo if self.is_undoing else self.job
        return worker is not None and worker.cancel_requested

    @property
    def name(self) -> str:
        return get_import_name(self.task)

    @property
    def result(self) -> list[ResultPart]:
        """Return the parts of the sentence about the rows of the file, or of its preview.

        Return an empty list for an import that hasn't succeeded, and for an import that the owner
        undoes or has undone.
        """
        is_done = self.task.status == "succeeded" and self.task.undone_at is None
        return describe_result(self.task) if is_done and not self.is_undoing else []

    @property
    def reasons(self) -> list[Mapping[str, Any]]:
        """Return why rows weren't added and cells weren't imported, each with examples."""
        # The opt-outs in a file are in the table of consent values.
        has_own_table = self.has_values or self.task.kind != ImportKind.MEMBERS
        reasons = [
            {"rule": rule, "column": None, "rows": rows, "examples": ()}
            for verdict, rule in _REASONS.items()
            if (rows := getattr(self.task, verdict))
            and not (has_own_table and verdict == "opted_out")
        ]
        return [*self.problems, *reasons]

    @property
    def has_values(self) -> bool:
        """Return whether the file has consent values that the page shows."""
        return bool(self.value_groups) or any(each.box for each in self.status_values)

    @property
    def importable_rows(self) -> int:
        """Return the number of additions, updates and opt-outs, including earlier opt-outs."""
        return self.task.added + self.task.updated + self.task.opted_out

    @property
    def activity(self) -> str:
        """Return how long the job has been running, or why it is waiting."""
        worker = self.undo if self.is_undoing else self.job
        if worker is None:
            return ""
        now = clock.now()
        retry_time = jobs.get_retry_time(worker)
        if retry_time is not None:
            when = format_distance(retry_time, now) if retry_time > now else "soon"
            reason = format_sentence(worker.last_reason or "The last attempt failed")
            return f"{reason} The next attempt starts {when}."
        seconds = max(0, int((now - (worker.started_at or worker.created_at)).total_seconds()))
        duration = format_duration(seconds - seconds % _ACTIVITY_STEP_SECONDS)
        if worker.started_at is None:
            return f"Waiting for a free worker for {duration}."
        is_opening = not (self.is_undoing or self.task.received)
        return f"{'Opening the file' if is_opening else 'Running'} for {duration}."

    @property
    def advice(self) -> list[str]:
        """Return the next steps after an internal error, as sentences."""
        task = self.task
        if not self.is_broken or task.error is None:
            return []
        if task.dry_run or not task.added:
            sentences = ["Nothing was imported."]
        else:
            sentences = [f"{format_count(task.added, 'member')} had been added before."]
        if not task.dry_run:
            sentences.append("Another attempt continues the import, and adds nobody twice.")
        if task.error["code"] == JOB_ROWS_FAILED.code:
            sentences.append("If it fails again, remove these lines from the file.")
        elif task.source == "file":
            sentences.append(
                "If it fails again, split the file into smaller files, and import them one after "
                "the other."
            )
        sentences.append("If the problem continues, ask the operator, who can see the reason.")
        return sentences

    @property
    def undo_stopped(self) -> bool:
        has_begun = self.undo is not None and self.task.undone_at is None
        return has_begun and not self.is_undoing

    @property
    def not_added(self) -> int:
        return sum(getattr(self.task, verdict) for verdict in VERDICT_LABELS)

    @property
    def has_rejects(self) -> bool:
        """The verdict ``opted_out`` is a rejection in an import of members, but a success in an
        import of bounces or opt-outs.
        """
        applied = 0 if self.task.kind == ImportKind.MEMBERS else self.task.opted_out
        has_rows = self.not_added > applied or self.task.left_out > 0
        return has_rows and self.task.files_removed_at is None

    @property
    def can_be_undone(self) -> bool:
        has_ended = self.task.status != "running" and not self.task.dry_run
        until = IMPORT_UNDO.available_until(self.task)
        has_time = until is not None and until > clock.now()
        return has_ended and not self.is_undoing and has_time and self.importable_rows > 0

    @property
    def next_step(self) -> tuple[str, str] | None:
        """Return the label and the path of the owner's next action, or ``None``."""
        path = f"{CONSOLE_PATH}/imports/{self.task.id}"
        if self.is_broken:
            return "Try again", path
        has_ended = self.file_kept_until is None and self.task.source == "file"
        if self.is_refused or (has_ended and self.task.status == "failed"):
            return "Choose another file", f"{CONSOLE_PATH}/imports/new?list_id={self.task.list_id}"
        if self.file_kept_until is not None:
            return "Finish the import" if self.importable_rows else "Check the preview", path
        return ("Undo", f"{path}/undo") if self.can_be_undone else None

    @property
    def date_order_matters(self) -> bool:
        is_asked = self.task.error is not None and self.task.error["code"] == (
            IMPORT_DATE_ORDER_NEEDED.code
        )
        return is_asked or self.task.date_order is not None

    @property
    def encoding_matters(self) -> bool:
        """The encoding of a Unicode file is certain, so the owner can't change it."""
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

        The owner needs another file, because no choice on the page changes the result. If the error
        is about columns, consent values, dates or the encoding, the owner can correct the choices
        instead.
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
        """Return when the file of a dry run will be deleted, or ``None`` if there is no file."""
        ended_at = self.task.finished_at
        if not self.task.dry_run or ended_at is None or self.is_broken:
            return None
        expires_at = ended_at + endings.DRY_RUN_FILE_RETENTION
        is_kept = self.task.status != "cancelled" and self.task.source == "file"
        return expires_at if is_kept and expires_at > clock.now() else None

    @property
    def left_out_columns(self) -> str | None:
        """Return a sentence that names the ignored columns with data, or ``None``."""
        names = [each.label for each in self.choices if each.is_left_out]
        if not names:
            return None
        shown_names = ", ".join(names[:MAX_LEFT_OUT_NAMES])
        more = len(names) - MAX_LEFT_OUT_NAMES
        verb = "is" if len(names) == 1 else "are"
        count = format_count(len(names), "column with data", "columns with data")
        return f"{count} {verb} left out: {shown_names}{f' and {more} more' if more > 0 else ''}."

    @property
    def counts(self) -> list[tuple[str, str]]:
        """Return the number of rows with each verdict, with its label."""
        task = self.task
        is_partial = task.status in {"cancelled", "failed"}
        counts = [("rows read" if is_partial else "rows in the file", task.received)]
        if task.kind == ImportKind.MEMBERS:
            counts.append(("would be added" if task.dry_run else "added", task.added))
        verdicts = ((words, getattr(task, name)) for name, words in VERDICT_LABELS.items())
        updated = "would be updated" if task.dry_run else "updated"
        more = (
            (f"existing members {updated}", task.updated),
            ("values that don’t fit", task.left_out),
        )
        counts += [(words, count) for words, count in (*verdicts, *more) if count]
        return [(words, f"{count:,}") for words, count in counts]

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


def read_view(uow: UnitOfWork, console: ConsoleRequest, import_id: int) -> ImportView:
    """Return one of the caller's imports, with sample rows of the file unless they were deleted.

    The function ends the transaction, because it reads the sample rows from the object storage.
    """
    task = records.get_import(uow, console.caller, import_id)
    title = lists.read_titles(uow, [task.list_id])[task.list_id]
    job = records.find_job(uow, task) if task.status == "running" else None
    undo = records.find_undo_job(uow, task)
    # Read the import again after reading its job, so that the last changes of a job that just ended
    # are included. A single transaction stores an import job's last changes to the import and marks
    # the job as ended.
    uow.session.refresh(task)
    own_fields = fields.list_fields(uow, console.account_id) if task.dry_run else []
    uow.roll_back()
    view = ImportView(task, title, job, undo, fields=own_fields)
    if view.is_live:
        return view
    result = add_samples(console.state.resources, endings.build_result(task))
    labels = find_labels(result.get("columns", ()), own_fields)
    status_values = list_status_values(task, result)
    return replace(
        view,
        choices=build_column_choices(task, result.get("columns", ()), own_fields)
        if task.dry_run
        else (),
        status_values=status_values,
        value_groups=group_values(status_values, result),
        preview=[describe_preview_row(row, labels) for row in result.get("preview", ())],
        problems=result.get("problems", ()),
        readings=[
            {**each, "words": ENCODINGS[each["encoding"]]} for each in result.get("readings", ())
        ],
    )


def describe_preview_row(row: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    joined_at = row.get("joined_at")
    values = row.get("fields", {})
    return {
        **row,
        "joined": datetime.fromisoformat(joined_at).date() if joined_at else None,
        "fields": [(labels.get(key, key), format_field_value(values[key])) for key in values],
    }
