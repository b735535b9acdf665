"""An export as its page shows it, whatever has become of it so far."""

from dataclasses import dataclass
from datetime import datetime

from api.state import State
from core import clock
from models import Job, JobStatus, MemberExport
from services.access.caller import Caller
from services.jobs import records as jobs
from services.jobs.records import Progress
from services.mailing import exports, lists
from services.mailing.bulk_files import BULK_FILE_RETENTION
from storage.unit_of_work import UnitOfWork

EXPORT_KINDS = tuple(exports.EXPORT_JOBS.values())


def lapses_at(export: MemberExport) -> datetime | None:
    """Until when the file is kept; ``None`` where there is none, or none any more."""
    has_file = export.size is not None and export.files_removed_at is None
    if not has_file or export.finished_at is None:
        return None
    until = export.finished_at + BULK_FILE_RETENTION
    return until if until > clock.now() else None


@dataclass(frozen=True)
class ShownExport:
    """
    Attributes:
        job: what works on it, or the last that did.
    """

    export: MemberExport
    list_title: str
    job: Job | None

    @property
    def is_running(self) -> bool:
        if self.export.size is not None:
            return False
        return self.export.finished_at is None or self._is_retried

    @property
    def _is_retried(self) -> bool:
        at_work = (JobStatus.QUEUED, JobStatus.RUNNING)
        return self.job is not None and self.job.status in at_work

    @property
    def lapses_at(self) -> datetime | None:
        return lapses_at(self.export)

    @property
    def reason(self) -> str | None:
        """Why there is no file, as far as that is kept."""
        if self.job is None or self.is_running:
            return None
        error = jobs.error_shown(self.job)
        return None if error is None else str(error["message"])

    @property
    def progress(self) -> Progress | None:
        return None if self.job is None else jobs.progress_of(self.job)


def shown_export(state: State, caller: Caller, export_id: int) -> ShownExport:
    """One of the caller's exports; raises ``export.not_found``."""
    with state.resources.unit_of_work() as uow:
        export = exports.get(uow, caller, export_id)
        title = lists.titles_of(uow, [export.list_id])[export.list_id]
        return ShownExport(export, title, _job_of(uow, export))


def _job_of(uow: UnitOfWork, export: MemberExport) -> Job | None:
    if export.size is not None:
        return None
    found = jobs.find_unfinished(uow, export.user_id, EXPORT_KINDS, export.id)
    return found or jobs.find_late(uow, export.user_id, EXPORT_KINDS, export.id)
