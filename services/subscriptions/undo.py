"""Undoes imports and bulk actions.

A job runs each undo, and restores members' previous values in batches. The transaction that
restores a batch locks the list, and stores where the next batch starts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from sqlalchemy import func, select

from core.errors.catalogue import ErrorType
from core.permissions import Permission
from core.queues import Queue
from core.scopes import Scope
from models import BulkAction, Job, JobStatus, MemberImport
from services.access.caller import Caller
from services.jobs.batches import work_in_turns
from services.jobs.kinds import (
    COMPUTING_DEADLINE_SECONDS,
    JobKind,
    JobPermissions,
    call_with_subject,
    register_kind,
)
from services.jobs.lease import JobCancelled, Lease
from services.jobs.outbox import enqueue_job
from services.jobs.records import retry_locked_job
from services.jobs.transitions import complete_job, record_progress
from services.subscriptions.members import locks
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# The period after an import or bulk action in which the owner can undo it. When the undo period
# ends, the previous values of the changed members are deleted.
UNDO_TIME = timedelta(days=90)

Row = TypeVar("Row", MemberImport, BulkAction)


class RestoredBatch(NamedTuple):
    """How many members a batch restored, and columns that say where the next batch starts."""

    members: int
    bookmark: Mapping[str, int]


@dataclass
class Undo(Generic[Row]):
    """Starts and runs the undo of one kind of change, either imports or bulk actions.

    In names, a row means an import or a bulk action.

    Attributes:
        id_name: the key for the id of the row in the job's result.
        restore_batch: a function that restores a batch of members, or returns ``None`` after the
            last one.
        end: a function to call after the undo, with the job's id and the job's status.
        has_total: whether the number of members to restore is known when the job is created.
        initial_values: the row's columns when an undo starts.
    """

    model: type[Row]
    job_name: str
    id_name: str
    not_found: ErrorType
    running: ErrorType
    over: ErrorType
    count_changed: Callable[[Row], int]
    restore_batch: Callable[[UnitOfWork, Row], RestoredBatch | None]
    end: Callable[[UnitOfWork, Row, int, str], None]
    is_complete: Callable[[Row], bool]
    has_total: bool
    needs_recent_login: bool
    initial_values: Mapping[str, None] = field(default_factory=dict)
    job_kind: JobKind = field(init=False)

    def __post_init__(self) -> None:
        self.job_kind = register_kind(
            JobKind(
                self.job_name,
                Queue.BULK,
                Scope.SUBSCRIPTION_FULL,
                permissions=JobPermissions(Permission.FIGURES, Permission.EDIT),
                retryable=True,
                run=self.run,
                needs_recent_login=self.needs_recent_login,
                deadline_seconds=COMPUTING_DEADLINE_SECONDS,
                # If an undo is abandoned, restored members stay restored, and ``start`` can
                # continue the undo.
                on_abandoned=call_with_subject(self.model, self.end),
            )
        )

    def find_row(self, uow: UnitOfWork, caller: Caller, row_id: int, *, lock: bool = False) -> Row:
        query = select(self.model).where(
            self.model.id == row_id, self.model.user_id == caller.account_id
        )
        # With ``key_share``, concurrent transactions can still insert rows that refer to the import
        # or bulk action.
        lock_query = query.with_for_update(key_share=True).execution_options(populate_existing=True)
        row = uow.session.scalar(lock_query if lock else query)
        if row is None:
            raise self.not_found()
        return row

    def available_until(self, row: Row) -> datetime | None:
        """Return ``None`` for an unfinished or undone row."""
        if row.finished_at is None or self.is_complete(row):
            return None
        return row.created_at + UNDO_TIME

    def start(self, uow: UnitOfWork, caller: Caller, row_id: int) -> int | None:
        """Return the id of the job, or ``None`` if the row was already undone completely."""
        # To avoid deadlocks, lock the row in ``jobs`` before the row of the import or bulk action.
        job_id = self.find_row(uow, caller, row_id).undo_job_id
        job = uow.session.get(Job, job_id, with_for_update=True) if job_id else None
        row = self.find_row(uow, caller, row_id, lock=True)
        if row.status == JobStatus.RUNNING:
            raise self.running()
        if self.is_complete(row):
            return None
        if row.undo_job_id != job_id:
            # A concurrent request has started the same undo, so return the id of the job that the
            # other request enqueued.
            return row.undo_job_id
        is_unfinished = job is not None and job.finished_at is None
        # Use the database's clock, because the job that deletes members' previous values also uses
        # this clock.
        is_in_time = select(self.model.created_at > func.now() - UNDO_TIME)
        if not (is_unfinished or uow.session.scalar(is_in_time.where(self.model.id == row.id))):
            raise self.over(days=UNDO_TIME.days)
        if job is None or row.undone_at is not None:
            for name, value in self.initial_values.items():
                setattr(row, name, value)
            total = self.count_changed(row) if self.has_total else None
            job = enqueue_job(
                uow, self.job_kind, account_id=caller.account_id, subject_id=row.id, total=total
            )
            row.undo_job_id = job.id
        elif job.status in (JobStatus.FAILED, JobStatus.CANCELLED):
            retry_locked_job(uow, job)
        return job.id

    def run(self, resources: Resources, lease: Lease) -> None:
        work_in_turns(resources, lease, partial(self._restore_next_batch, lease=lease))

    def _restore_next_batch(self, uow: UnitOfWork, lease: Lease) -> bool:
        row = uow.session.get(self.model, lease.subject_id)
        if row is None:
            raise JobCancelled
        if row.status == JobStatus.RUNNING:
            raise self.running()
        locks.lock_list(uow, row.list_id)
        batch = self.restore_batch(uow, row)
        changed = self.count_changed(row)
        # To avoid deadlocks, update the row in ``jobs`` before the row of the import or bulk
        # action.
        if batch is None:
            counts = {self.id_name: row.id, "undone": row.undone, "kept": changed - row.undone}
            complete_job(uow, lease, counts)
            row.undone_at = func.now()
            self.end(uow, row, lease.job_id, JobStatus.SUCCEEDED)
            return True
        record_progress(uow, lease, done=row.undone + batch.members, total=changed)
        row.undone += batch.members
        for name, place in batch.bookmark.items():
            setattr(row, name, place)
        return False
