"""An import as its page shows it, and the choice of what the columns of its file become."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from api.console.imports.status_values import StatusValue, status_values_of
from api.console.requests import ConsoleRequest
from api.console.typed_forms import field_error
from core import clock
from core.errors import DomainError
from core.errors.imports import IMPORT_DATE_ORDER_NEEDED
from models import FINISHED, Job, MemberField, MemberImport
from services.jobs import records as jobs
from services.jobs.records import Progress
from services.subscriptions import fields, lists
from services.subscriptions.imports import column_layout, endings, field_columns, records
from services.subscriptions.imports.column_forms import DecimalMark
from services.subscriptions.imports.column_layout import (
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
MAX_NAME_CHARACTERS_SHOWN = 80
IGNORE, NEW_FIELD, AS_RECOGNISED = "ignore", "new", ""
FIELD_TYPES = dict(
    zip(field_columns.NEW_TYPES, ("text", "number", "date", "yes or no"), strict=True)
)
# Further choices, with the type of the new field behind the colon.
_TYPED_FIELDS = {
    f"{NEW_FIELD}:{type_}": f"Create a field: {words}" for type_, words in FIELD_TYPES.items()
}
DATE_ORDERS = (
    ("", "As the file shows"),
    (DateOrder.DAY_FIRST.value, "Day first: 31/12/2025"),
    (DateOrder.MONTH_FIRST.value, "Month first: 12/31/2025"),
)
_WRITTEN = {
    DateOrder.DAY_FIRST: "Dates with the day first",
    DateOrder.MONTH_FIRST: "Dates with the month first",
    DecimalMark.POINT: "Numbers with a decimal point",
    DecimalMark.COMMA: "Numbers with a decimal comma",
}
# Roles that several columns may have.
_OFTEN = (
    *(IGNORE, NEW_FIELD, *_TYPED_FIELDS, AS_RECOGNISED, "tags", "tier", *ConsentSubject),
    *("first_name", "middle_name", "last_name"),
)
_WORDS = {
    "email": "E-mail address",
    "name": "Name",
    "first_name": "First name",
    "middle_name": "Middle name",
    "last_name": "Last name",
    "tier": "Tier",
    "paid_expiry": "Paid until",
    "status": "Status",
    "subscribed": "Gets mail, yes or no",
    "unsubscribed": "Opted out, yes or no",
    "confirmed": "Confirmed, yes or no",
    "tags": "Tags",
    "joined_at": "Joined on",
    "consent.at": "Consent: when",
    "consent.how": "Consent: how",
    "consent.ip": "Consent: IP address",
    "consent.url": "Consent: page",
    "consent.wording": "Consent: wording",
    "consent.confirmed_at": "Consent: confirmed on",
    "consent.confirmed_ip": "Consent: confirmed from",
    IGNORED: "Nothing",
}


@dataclass(frozen=True)
class ColumnChoice:
    """A column of a file, and its role.

    Attributes:
        becomes: a role of ``column_layout.ROLES``, a field, or several roles separated by commas.
        creates: the type of the field that is made of it.
        written: how it writes dates or numbers, in words.
        chosen: the value of its select box.
        ignored_opt_outs: the number of opt-outs in an ignored column; ``None`` for other columns.
    """

    index: int
    name: str
    examples: Sequence[str]
    becomes: str
    creates: str | None
    written: str | None
    chosen: str
    ignored_opt_outs: int | None = None

    @property
    def box(self) -> str:
        return f"column_{self.index}"

    @property
    def label(self) -> str:
        return self.name.strip()[:MAX_NAME_CHARACTERS_SHOWN] or f"Column {self.index + 1}"

    @property
    def recognised(self) -> str | None:
        """The roles that its name or its cells suggest, if any."""
        if self.creates is not None:
            return None
        if self.becomes == IGNORED:
            return "Recognise by name" if self.chosen == AS_RECOGNISED else None
        return ", ".join(_words(role) for role in self.becomes.split(", "))


def column_choices(
    task: MemberImport, shown: Sequence[Mapping[str, Any]], fields: Sequence[MemberField]
) -> list[ColumnChoice]:
    """Return the select boxes for the columns of a dry run.

    If an ambiguous column stopped the import, no other column has been recognised yet. The other
    columns then keep the choice "Recognise by name", so that the owner has to choose only for the
    ambiguous one.

    Args:
        shown: the columns in the result of the dry run, with sample cells.
    """
    names = [str(each["name"]) for each in shown]
    is_recognised = any(each["becomes"] != IGNORED for each in shown)
    own = {FIELD_PREFIX + field.key for field in fields}
    given = {}
    for name, role in (task.mapping or {}).items():
        try:
            given[column_layout.find_column(names, name)] = role
        except DomainError:
            # The file has no such column: its error says so.
            continue
    found = []
    for index, each in enumerate(shown):
        becomes, creates = str(each["becomes"]), each.get("creates")
        if index in given:
            role = given[index]
            name, _, type_ = role.partition(":")
            is_new = role.startswith(FIELD_PREFIX) and name not in own
            chosen = (f"{NEW_FIELD}:{type_}" if type_ else NEW_FIELD) if is_new else name
        elif creates is not None:
            chosen = NEW_FIELD
        else:
            chosen = IGNORE if becomes == IGNORED and is_recognised else AS_RECOGNISED
        examples = each.get("examples", ())
        written = _WRITTEN.get(each.get("written", ""))
        found.append(
            ColumnChoice(
                *(index, names[index], examples, becomes, creates, written, chosen),
                ignored_opt_outs=each.get("ignored_opt_outs"),
            )
        )
    return found


def roles_to_choose(fields: Sequence[MemberField]) -> list[tuple[str, str]]:
    known = [(role, _words(role)) for role in column_layout.ROLES if role != IGNORE]
    own = [(FIELD_PREFIX + field.key, f"Field: {field.label}") for field in fields]
    new = [(NEW_FIELD, "Create a field"), *_TYPED_FIELDS.items()]
    return [(IGNORE, "Nothing: leave it out"), *known, *own, *new]


def chosen_by(form: Mapping[str, str], choices: Sequence[ColumnChoice]) -> list[str]:
    """Return the choice for each column; a column that is not on the form keeps its own.

    Raises ``body.invalid`` beside a column that has the role of another.
    """
    found = [form.get(each.box, each.chosen) for each in choices]
    seen: set[str] = set()
    for choice, value in zip(choices, found, strict=True):
        if value in seen and value not in _OFTEN:
            raise field_error(choice.box, "Another column is this already.")
        seen.add(value)
    return found


def mapping_of(
    choices: Sequence[ColumnChoice], chosen: Sequence[str], fields: Sequence[MemberField]
) -> dict[str, str]:
    names = [each.name for each in choices]
    keys = {field.key for field in fields}
    found: dict[str, str] = {}
    for each, value in zip(choices, chosen, strict=True):
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
            is_found = (
                bool(each.name.strip())
                and column_layout.find_column(names, each.name) == each.index
            )
        except DomainError:
            is_found = False
        found[each.name if is_found else str(each.index)] = role
    return found


def is_new_field(choice: str) -> bool:
    return choice == NEW_FIELD or choice in _TYPED_FIELDS


def _words(role: str) -> str:
    if role.startswith(FIELD_PREFIX):
        return f"Field {role.removeprefix(FIELD_PREFIX)}"
    return _WORDS.get(role, role.removeprefix(CONSENT_PREFIX).replace("_", " ").capitalize())


_MINUTE, _HOUR = 60, 3_600
# The verdicts on rows that were not added, in the order of the page.
VERDICTS = {
    "already": "are members already",
    "opted_out": "said no, here or in the file",
    "invalid": "are invalid",
    "duplicate": "come twice in the file",
    "denied": "are on a deny list",
    "over_quota": "have no room in your plan",
}


@dataclass(frozen=True)
class ShownImport:
    """An import as one look at its record has it: its state and its counts belong together.

    Attributes:
        job: the job that works on it now.
        choices: the columns of a dry run that can be read again.
        status_values: the consent values in these columns.
        preview: the first rows of a dry run as they would be.
        problems: what does not fit in the file, by column and rule.
        readings: sample rows in each possible encoding, if the encoding is uncertain.
        fields: the owner's.
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
        """Return whether an undo began, and ended before it was done."""
        begun = self.undo is not None and self.task.undone_at is None
        return begun and not self.is_undoing

    @property
    def not_added(self) -> int:
        return sum(getattr(self.task, verdict) for verdict in VERDICTS)

    @property
    def has_rejects(self) -> bool:
        """Return whether there is a file of rows that were not added, or not whole."""
        has_some = self.not_added > 0 or self.task.left_out > 0
        return has_some and self.task.files_removed_at is None

    @property
    def can_be_undone(self) -> bool:
        over = self.task.status != "running" and not self.task.dry_run
        return over and not self.is_undoing and IMPORT_UNDO.available_until(self.task) is not None

    @property
    def date_order_matters(self) -> bool:
        """Return whether the owner is asked for the order of dates, or has chosen it."""
        is_asked = self.task.error is not None and self.task.error["code"] == (
            IMPORT_DATE_ORDER_NEEDED.code
        )
        return is_asked or self.task.date_order is not None

    @property
    def encoding_matters(self) -> bool:
        """Return whether the owner can choose an encoding: only if the file isn't Unicode."""
        found = (self.task.description or {}).get("encoding", "utf-8")
        return bool(self.readings) or self.task.encoding is not None or not found.startswith("utf")

    @property
    def encoding_words(self) -> str | None:
        """Return the display name of the file's encoding, or ``None`` if the file is Unicode."""
        return ENCODINGS.get((self.task.description or {}).get("encoding", ""))

    @property
    def is_broken(self) -> bool:
        """Return whether it failed by no fault of the file, so that it may go on."""
        if self.task.status != "failed" or self.task.error is None:
            return False
        return str(self.task.error["code"]).startswith("job.")

    @property
    def file_kept_until(self) -> datetime | None:
        """The moment until which a dry run can be read in another way, or imported."""
        ended = self.task.finished_at
        if not self.task.dry_run or ended is None or self.is_broken:
            return None
        until = ended + endings.DRY_RUN_FILE_KEPT
        is_kept = self.task.status != "cancelled" and self.task.source == "file"
        return until if is_kept and until > clock.now() else None

    @property
    def verdicts(self) -> list[tuple[int, str]]:
        counts = ((getattr(self.task, name), words) for name, words in VERDICTS.items())
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
        if seconds < _MINUTE:
            return f"about {max(round(seconds), 1)} s"
        if seconds < _HOUR:
            return f"about {round(seconds / _MINUTE)} min"
        return f"about {seconds / _HOUR:.1f} h"

    @property
    def job_ids(self) -> list[int]:
        return [each.id for each in (self.job, self.undo) if each is not None]


def shown_import(console: ConsoleRequest, import_id: int) -> ShownImport:
    """Return one of the caller's imports, with rows and cells of its file as long as they are kept.

    Raises ``import.not_found``.
    """
    resources = console.state.resources
    with console.unit_of_work() as uow:
        task = records.get_import(uow, console.caller, import_id)
        title = lists.titles_of(uow, [task.list_id])[task.list_id]
        job = records.find_job(uow, task) if task.status == "running" else None
        undo = records.find_undo_job(uow, task)
        # A job and its effects end in one transaction: whoever has seen the job's end, and reads
        # the record after it, sees all of them.
        uow.session.refresh(task)
        own = fields.list_fields(uow, console.user_id) if task.dry_run else []
    shown = ShownImport(task, title, job, undo, fields=own)
    if shown.is_live:
        return shown
    found = add_samples(resources, endings.result_of(task))
    return replace(
        shown,
        choices=column_choices(task, found.get("columns", ()), own) if task.dry_run else (),
        status_values=status_values_of(task, found),
        preview=found.get("preview", ()),
        problems=found.get("problems", ()),
        readings=[
            {**each, "words": ENCODINGS[each["encoding"]]} for each in found.get("readings", ())
        ],
    )
