"""An import as its page shows it, whatever has become of it so far.

What state it is in, its counts and whether it has a file of rows that were not added come from one
look at its record: so no page tells of an end without what the end brought.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from api.console.of_imports.import_columns import ColumnChoice, column_choices
from api.state import State
from core import clock
from models import FINISHED, Job, MemberField, MemberImport
from services.access.caller import Caller
from services.jobs import records as jobs
from services.jobs.records import Progress
from services.mailing import lists
from services.mailing.attributes import fields
from services.mailing.imports import endings, records, shown_cells
from services.mailing.imports.applying.first_rejects import RejectedRow, first_rejects

_MINUTE, _HOUR = 60, 3_600
# The verdicts under which rows are told of, in this order.
VERDICTS = {
    "already": "were members already",
    "opted_out": "said no, here or in the file",
    "invalid": "have no valid address",
    "duplicate": "came twice in the file",
    "denied": "are on a deny list",
    "over_quota": "had no room in your plan",
}


@dataclass(frozen=True)
class ShownImport:
    """
    Attributes:
        job: what works on it, or on its undo, now.
        choices: of a dry run that can be looked at again.
        preview: the first rows of a dry run as they would be.
        fields: the owner's.
    """

    task: MemberImport
    list_title: str
    job: Job | None
    undo: Job | None
    choices: Sequence[ColumnChoice] = ()
    preview: Sequence[Mapping[str, Any]] = ()
    rejects: Sequence[RejectedRow] = ()
    fields: Sequence[MemberField] = ()

    @property
    def is_running(self) -> bool:
        return self.task.status == "running"

    @property
    def is_undoing(self) -> bool:
        return (
            self.task.undone_at is None
            and self.undo is not None
            and self.undo.status not in FINISHED
        )

    @property
    def is_live(self) -> bool:
        """Whether it changes by itself."""
        return self.is_running or self.is_undoing

    @property
    def undo_stopped(self) -> bool:
        """Whether an undo began, and ended before it was done."""
        begun = self.undo is not None and self.task.undone_at is None
        return begun and not self.is_undoing

    @property
    def not_added(self) -> int:
        return sum(getattr(self.task, verdict) for verdict in VERDICTS)

    @property
    def has_rejects(self) -> bool:
        """Whether there is a file of rows that were not added, or not whole."""
        has_some = self.not_added > 0 or self.task.left_out > 0
        return has_some and self.task.files_removed_at is None

    @property
    def can_be_undone(self) -> bool:
        over = self.task.status != "running" and not self.task.dry_run
        return over and not self.is_undoing and records.undo_until(self.task) is not None

    @property
    def is_broken(self) -> bool:
        """Whether it failed by no fault of the file, so that it may go on."""
        error = self.task.error
        failed = self.task.status == "failed" and error is not None
        return failed and error is not None and str(error["code"]).startswith("job.")

    @property
    def file_kept_until(self) -> datetime | None:
        """Until when a dry run can be looked at by another choice, or imported."""
        ended = self.task.finished_at
        if not self.task.dry_run or ended is None or self.is_broken:
            return None
        until = ended + endings.DRY_RUN_FILE_KEPT
        is_kept = self.task.status != "cancelled" and self.task.source == "file"
        return until if is_kept and until > clock.now() else None

    @property
    def verdicts(self) -> list[tuple[int, str]]:
        """How many rows were not added, by why."""
        return [(count, words) for name, words in VERDICTS.items() if (count := self._count(name))]

    def _count(self, name: str) -> int:
        count: int = getattr(self.task, name)
        return count

    @property
    def progress(self) -> Progress | None:
        worker = self.undo if self.is_undoing else self.job
        return None if worker is None else jobs.progress_of(worker)

    @property
    def time_left(self) -> str | None:
        """In words; ``None`` while that is not known."""
        progress = self.progress
        if progress is None or progress.eta_seconds is None:
            return None
        return _in_words(progress.eta_seconds)

    @property
    def job_ids(self) -> list[int]:
        return [each.id for each in (self.job, self.undo) if each is not None]


def shown_import(state: State, caller: Caller, import_id: int) -> ShownImport:
    """One of the caller's imports; raises ``import.not_found``."""
    with state.resources.unit_of_work() as uow:
        task = records.get(uow, caller, import_id)
        title = lists.titles_of(uow, [task.list_id])[task.list_id]
        job = records.job_of(uow, task) if task.status == "running" else None
        undo = records.undo_job_of(uow, task)
        # A job and what it did end in one transaction: who has seen the job's end, and reads the
        # record after it, sees all of it.
        uow.session.refresh(task)
        own = fields.list_of(uow, caller.user_id) if task.dry_run else []
    shown = ShownImport(task, title, job, undo, fields=own)
    if shown.is_live:
        return shown
    return _with_rows(state, shown)


def _with_rows(state: State, shown: ShownImport) -> ShownImport:
    """The same with rows and cells of the file, as long as they are kept."""
    task = shown.task
    found = shown_cells.shown(state.resources, endings.result_of(task)) if task.dry_run else {}
    return replace(
        shown,
        choices=column_choices(task, found.get("columns", ()), shown.fields),
        preview=found.get("preview", ()),
        rejects=first_rejects(state.resources, task) if shown.has_rejects else (),
    )


def _in_words(seconds: float) -> str:
    if seconds < _MINUTE:
        return f"about {max(round(seconds), 1)} s"
    if seconds < _HOUR:
        return f"about {round(seconds / _MINUTE)} min"
    return f"about {seconds / _HOUR:.1f} h"
