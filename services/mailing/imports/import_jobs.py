"""An import's job: a few seconds of chunks, then to the end of the lane, until all are applied."""

import gc
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

from sqlalchemy import func, select

from core.errors import DomainError, Kind
from core.lanes import Lane
from core.refusals.imports import IMPORT_NO_ROWS, MEMBERS_ALL_INVALID
from core.scopes import Scope
from models import ImportChunk, Job, MemberImport
from services.jobs import kinds
from services.jobs import lease as leases
from services.jobs.lease import JobCancelled, Lease
from services.jobs.records import error_shown
from services.mailing import lists
from services.mailing.imports.applying import apply
from services.mailing.imports.applying.apply import AppliedChunk, PreparedChunk
from services.mailing.imports.entries import chunk_key
from services.mailing.imports.prefetch import Prefetch
from services.mailing.imports.splitting import split as splitting
from storage.parts import remove_all
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# Long enough that taking turns costs little, short enough that somebody else's hundred rows wait
# for no more than this.
TURN_SECONDS = 4.0
COUNTS = ("received", "added", "already", "opted_out", "invalid", "duplicate", "updated")


def _end_with_job(uow: UnitOfWork, job: Job) -> None:
    """What was applied stays, and can be taken back; the rest will not come."""
    task = uow.session.get(MemberImport, job.subject_id)
    if task is not None:
        task.status, task.error = job.status, error_shown(job)
        _finish(uow, task)


def _finish(uow: UnitOfWork, task: MemberImport) -> None:
    """Nobody reads the file again; what became of its rows is in the database."""
    task.finished_at = func.now()
    uow.after_commit(partial(remove_all, uow.objects, task.object_prefix))


def _register(name: str) -> kinds.JobKind:
    return kinds.register(
        kinds.JobKind(
            name=name,
            lane=Lane.BULK,
            scope=Scope.SUBSCRIPTION_FULL,
            retryable=False,
            on_abandoned=_end_with_job,
            max_retries=30,
        )
    )


ADD_MEMBERS = _register("members.add")
IMPORT_FILE = _register("members.import")


def run(resources: Resources, lease: Lease) -> None:
    """One turn. Raises a ``DomainError`` with a code ``import.…`` for a file that can't be read,
    and ``list.not_found`` for a list that was archived."""
    with _without_collecting():
        _run(resources, lease)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Rows make no cycles, and looking for some in millions of them takes a quarter of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _run(resources: Resources, lease: Lease) -> None:
    turn = _Turn()
    task = _load(resources, lease)
    if not task.is_split:
        task = _split(resources, lease, task, turn)
    if task.is_split:
        task = _apply(resources, lease, task, turn)
    with resources.unit_of_work() as uow:
        if task.is_split and task.applied == task.chunks:
            _succeed(uow, lease, task)
        else:
            leases.yield_turn(uow, lease)


class _Turn:
    def __init__(self) -> None:
        self._ends = time.monotonic() + TURN_SECONDS

    def is_over(self) -> bool:
        return time.monotonic() >= self._ends


def _load(resources: Resources, lease: Lease) -> MemberImport:
    with resources.unit_of_work() as uow:
        task = uow.session.get(MemberImport, lease.subject_id)
    if task is None:
        raise JobCancelled
    return task


def _split(resources: Resources, lease: Lease, task: MemberImport, turn: _Turn) -> MemberImport:
    split = splitting.take_split(resources.objects, task)
    # As long as a turn too: what was stored before a restart may take minutes to read again.
    while split.number < task.chunks and not turn.is_over():
        lease.check_cancelled()
        split.pass_over()
    while not task.is_split and not turn.is_over():
        lease.check_cancelled()
        task = _store_chunk(resources, lease, task, split)
    if task.is_split:
        split.close()
    else:
        with resources.unit_of_work() as uow:
            splitting.keep_split(task, split, _unsplit(uow, splitting.kept_splits()))
    return task


def _store_chunk(
    resources: Resources, lease: Lease, task: MemberImport, split: splitting.FileSplit
) -> MemberImport:
    rows = split.store_next()
    total = task.received + rows if split.is_complete else None
    with resources.unit_of_work() as uow:
        # Checks that the job is still ours, in the transaction that says how far it got.
        leases.progress(uow, lease, done=0, total=total)
        task = uow.session.get_one(MemberImport, task.id)
        task.chunks, task.is_split = split.number, split.is_complete
        task.received += rows
        if task.description is None:
            task.description = {**split.description, "header": split.header}
    return task


def _unsplit(uow: UnitOfWork, import_ids: list[int]) -> list[int]:
    query = select(MemberImport.id).where(
        MemberImport.id.in_(import_ids),
        MemberImport.status == "running",
        MemberImport.is_split.is_(False),
    )
    return list(uow.session.scalars(query))


def _apply(resources: Resources, lease: Lease, task: MemberImport, turn: _Turn) -> MemberImport:
    with closing(_prepared(resources, task)) as chunks:
        for number in range(task.applied, task.chunks):
            lease.check_cancelled()
            task = _apply_chunk(resources, lease, task, number, chunks.take())
            if turn.is_over():
                break
    return task


def _prepared(resources: Resources, task: MemberImport) -> Prefetch[PreparedChunk]:
    numbers = iter(range(task.applied, task.chunks))

    def next_chunk() -> PreparedChunk:
        number = next(numbers, None)
        if number is None:
            return PreparedChunk([], "")
        return apply.prepare(resources.objects.get(chunk_key(task.object_prefix, number)))

    return Prefetch(next_chunk)


def _apply_chunk(
    resources: Resources, lease: Lease, task: MemberImport, number: int, chunk: PreparedChunk
) -> MemberImport:
    with resources.unit_of_work() as uow:
        task = uow.session.get_one(MemberImport, task.id)
        _require_list(uow, task.list_id)
        applied = apply.apply(uow, resources.keyring, task, chunk)
        # The job first, then the import, as whoever ends both takes them. This is what
        # takes the chunk back when the job is not ours any more.
        leases.progress(uow, lease, done=_done(task) + len(chunk.entries), total=task.received)
        # A chunk has one such row: a second try of it fails here, whoever makes it.
        uow.session.add(ImportChunk(import_id=task.id, number=number, not_added=applied.not_added))
        _count(task, applied)
        task.applied = number + 1
    return task


def _require_list(uow: UnitOfWork, list_id: int) -> None:
    """Nobody joins a list that was archived meanwhile; raises ``list.not_found``."""
    try:
        lists.get(uow, list_id)
    except DomainError as error:
        # Invalid: a caller who waits for the import was found the list they named.
        raise DomainError(Kind.INVALID, error.code, error.message) from None


def _count(task: MemberImport, applied: AppliedChunk) -> None:
    for verdict, rows in applied.counts.items():
        setattr(task, verdict, getattr(task, verdict) + rows)
    task.updated += applied.updated


def _done(task: MemberImport) -> int:
    return task.added + task.already + task.opted_out + task.invalid + task.duplicate


def _succeed(uow: UnitOfWork, lease: Lease, task: MemberImport) -> None:
    task = uow.session.get_one(MemberImport, task.id)
    if not task.received:
        raise IMPORT_NO_ROWS()
    if task.source == "members" and task.received == task.invalid:
        raise MEMBERS_ALL_INVALID()
    leases.succeed(uow, lease, result_of(task))
    task.status = "succeeded"
    _finish(uow, task)


def result_of(task: MemberImport) -> dict[str, Any]:
    """The counts of an import as its job shows them."""
    counts = {name: getattr(task, name) for name in COUNTS}
    return {**counts, "import_id": task.id, "dry_run": task.dry_run}
