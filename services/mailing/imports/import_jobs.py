"""The job of an import. It takes turns of a few seconds until all chunks are applied."""

import gc
import time
from contextlib import closing
from datetime import timedelta
from typing import Any

from sqlalchemy import func, select

from core.errors import DomainError, Kind
from core.lanes import Lane
from core.refusals.imports import IMPORT_NO_ROWS, MEMBERS_ALL_INVALID
from core.scopes import Scope
from core.settings.plan_quotas import PlanQuota
from models import ImportChunk, Job, MemberImport
from services import removals
from services.access import quotas
from services.jobs import kinds
from services.jobs import lease as leases
from services.jobs.lease import JobCancelled, Lease
from services.jobs.records import KEPT_FOR_RETRY, error_shown, is_retry_sensible
from services.mailing import lists, sealed_files
from services.mailing.imports.applying import apply, verdicts
from services.mailing.imports.applying.apply import PreparedChunk
from services.mailing.imports.applying.verdicts import OVER_QUOTA
from services.mailing.imports.chunks import chunk_key
from services.mailing.imports.prefetch import Prefetch
from services.mailing.imports.splitting import split as splitting
from storage.encryption import seal, unseal
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# Long enough that taking turns costs little, and short enough that a small import does not wait
# longer than this for a large one.
TURN_SECONDS = 4.0
_VERDICTS = ("added", "already", "opted_out", "invalid", "duplicate")
_ALL_VERDICTS = (*_VERDICTS, OVER_QUOTA)
COUNTS = ("received", *_VERDICTS, "updated")


def _end_with_job(uow: UnitOfWork, job: Job) -> None:
    """End the import with its job. Applied chunks stay, and can be undone."""
    task = uow.session.get(MemberImport, job.subject_id)
    if task is not None:
        task.status, task.error = job.status, error_shown(job)
        _finish(uow, task, keep_for=KEPT_FOR_RETRY if is_retry_sensible(job) else timedelta(0))


def _go_on_with_job(uow: UnitOfWork, job: Job) -> bool:
    """Go on with an import that failed, at the first chunk that is not applied."""
    task = uow.session.get(MemberImport, job.subject_id)
    if task is None or task.files_removed_at is not None:
        return False
    if not removals.keep(uow, f"{task.object_prefix}/"):
        return False
    task.status, task.error, task.finished_at = "running", None, None
    # What it adds from now on is taken back too.
    task.undo_restored = task.undo_removed = None
    return True


def _finish(uow: UnitOfWork, task: MemberImport, *, keep_for: timedelta = timedelta(0)) -> None:
    """Remove the file: the verdicts on its rows are in the database."""
    task.finished_at = func.now()
    removals.forget(uow, f"{task.object_prefix}/", after=keep_for)


def _register(name: str) -> kinds.JobKind:
    return kinds.register(
        kinds.JobKind(
            name=name,
            lane=Lane.BULK,
            scope=Scope.SUBSCRIPTION_FULL,
            retryable=True,
            on_abandoned=_end_with_job,
            on_restarted=_go_on_with_job,
        )
    )


ADD_MEMBERS = _register("members.add")
IMPORT_FILE = _register("members.import")


def run(resources: Resources, lease: Lease) -> None:
    """Take one turn.

    Raises a ``DomainError`` with a code ``import.…`` for a file that can't be read,
    ``list.not_found`` for a list that was archived, and ``quota.exceeded``: before the first row
    if the plan has no room for the chunks, after the last if it had none for some member.
    """
    # Rows make no reference cycles, and the search for cycles among millions of rows takes a
    # quarter of the time.
    gc.disable()
    try:
        turn = Turn()
        with resources.unit_of_work() as uow:
            task = uow.session.get(MemberImport, lease.subject_id)
        if task is None:
            raise JobCancelled
        if not task.is_split:
            task = _split(resources, lease, task, turn)
        if task.is_split:
            task = _apply(resources, lease, task, turn)
        with resources.unit_of_work() as uow:
            if not task.is_split or task.applied < task.chunks:
                leases.yield_turn(uow, lease)
                return
            task = uow.session.get_one(MemberImport, task.id)
            if not task.received:
                raise IMPORT_NO_ROWS()
            if task.source == "members" and task.received == task.invalid:
                raise MEMBERS_ALL_INVALID()
            if task.over_quota:
                raise quotas.exceeded(uow, resources.settings, task.user_id, PlanQuota.MEMBERS)
            leases.succeed(uow, lease, result_of(task))
            task.status = "succeeded"
            _finish(uow, task)
    finally:
        gc.enable()


class Turn:
    """A few seconds of work, after which a job goes to the end of the bulk lane."""

    def __init__(self) -> None:
        self._ends = time.monotonic() + TURN_SECONDS

    def is_over(self) -> bool:
        return time.monotonic() >= self._ends


def _split(resources: Resources, lease: Lease, task: MemberImport, turn: Turn) -> MemberImport:
    split = splitting.take_split(resources, task)
    # Bounded by the turn too: reading again what was stored before a restart may take minutes.
    while split.number < task.chunks and not turn.is_over():
        lease.check_cancelled()
        split.read_next(store=False)
    while not task.is_split and not turn.is_over():
        lease.check_cancelled()
        rows = split.read_next(store=True)
        with resources.unit_of_work() as uow:
            # Fails if another worker has the job now, in the transaction of the progress.
            total = task.received + rows if split.is_complete else None
            leases.progress(uow, lease, done=0, total=total)
            task = uow.session.get_one(MemberImport, task.id)
            if not task.by_operator:
                storage, more = PlanQuota.STORAGE_MB, split.chunk_bytes
                quotas.require(uow, resources.settings, task.user_id, storage, more=more)
            task.chunk_bytes += split.chunk_bytes
            task.chunks, task.is_split = split.number, split.is_complete
            task.received += rows
            if task.description is None:
                task.description = {**split.description, "header": split.header}
    if task.is_split:
        split.close()
        return task
    with resources.unit_of_work() as uow:
        unfinished = select(MemberImport.id).where(
            MemberImport.id.in_(splitting.kept_splits()),
            MemberImport.status == "running",
            MemberImport.is_split.is_(False),
        )
        splitting.keep_split(task, split, list(uow.session.scalars(unfinished)))
    return task


def _apply(resources: Resources, lease: Lease, task: MemberImport, turn: Turn) -> MemberImport:
    prefix, key = task.object_prefix, sealed_files.data_key(resources, task)
    numbers = iter(range(task.applied, task.chunks))

    def prepare_next() -> PreparedChunk:
        number = next(numbers, None)
        if number is None:
            return PreparedChunk([], "")
        name = chunk_key(prefix, number)
        return apply.prepare(unseal(resources.objects.get(name), key, name))

    with closing(Prefetch(prepare_next)) as chunks:
        for number in range(task.applied, task.chunks):
            lease.check_cancelled()
            chunk = chunks.take()
            with resources.unit_of_work() as uow:
                task = uow.session.get_one(MemberImport, task.id)
                try:
                    lists.get(uow, task.list_id)
                except DomainError as error:
                    # A list that was archived meanwhile takes no members. Invalid, not missing: the
                    # list existed when the waiting caller named it.
                    raise DomainError(Kind.INVALID, error.code, error.message) from None
                applied = apply.apply(uow, resources.settings, task, chunk)
                # The job first, then the import: the order in which a transaction that ends both
                # locks them. If another worker has the job now, this rolls the chunk back.
                done = sum(getattr(task, verdict) for verdict in _ALL_VERDICTS) + len(chunk.rows)
                leases.progress(uow, lease, done=done, total=task.received)
                # A chunk has one such row: a second application fails here, in any worker.
                not_added = seal(applied.not_added, key, verdicts.rejects_name(prefix, number))
                row = ImportChunk(import_id=task.id, number=number, not_added=not_added)
                uow.session.add(row)
                for verdict, rows in applied.counts.items():
                    setattr(task, verdict, getattr(task, verdict) + rows)
                task.updated += applied.updated
                task.applied = number + 1
            if turn.is_over():
                break
    return task


def result_of(task: MemberImport) -> dict[str, Any]:
    """The result of the import's job: the counts, and which import it was."""
    counts = {name: getattr(task, name) for name in COUNTS}
    return {**counts, "import_id": task.id, "dry_run": task.dry_run}
