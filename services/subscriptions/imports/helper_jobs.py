"""The helpers of an import: jobs that apply its chunks at the same time, in as many processes.

Once a file is split, its job leaves the rest to a first helper. A helper that has its turn takes
the first chunk that no other has, and enqueues one more helper while chunks are left and none
waits. A helper beside which no other runs applies two chunks at a time. A helper that finds no
chunk ends; the last one ends the import.

A helper's claim on a chunk counts for as long as that attempt at its job runs. Each chunk is
written under both fences, the helper's and that of the import's job: when the import was cancelled
or a helper lost its lease, the chunk is rolled back. Chunks of one file have no address in common.
An import that meets another one on its list has one helper, and they take turns.

Chunks with opt-outs are applied first. The other chunks wait until all chunks with opt-outs have
been applied.

A chunk that kills its process is tried three times. From the second try on it is alone in its
turn, so that another chunk loses at most one try. A chunk that was tried often enough, or that the
database refuses, fails the import once all others are applied.
"""

import gc
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import psycopg2
from sqlalchemy import delete, exists, select, text
from sqlalchemy.exc import SQLAlchemyError

from core.errors import DomainError, TransientError
from core.errors.jobs import JOB_OPT_OUTS_FAILED, JOB_ROWS_FAILED, JOB_TOO_SLOW, JOB_WORKER_LOST
from core.queues import Queue
from core.scopes import Scope
from models import Job, JobStatus, MemberImport, WaitingChunk
from services.access.quotas import MAX_SHARES
from services.jobs import records
from services.jobs.batches import Turn
from services.jobs.kinds import JobKind, register_kind
from services.jobs.lease import JobCancelled, Lease, LeaseLost, renew_lease
from services.jobs.outbox import enqueue_job
from services.jobs.transitions import (
    cancel_job,
    complete_job,
    fail_job,
    hand_back_job,
    leave_to_helpers,
    lock_shared_lease,
    record_progress,
)
from services.subscriptions.imports import applying, chunks, chunks_at_once, endings
from services.subscriptions.imports.applying import ChunkBroke, NotInTurn
from services.subscriptions.imports.chunks import PreparedChunk
from storage.database import Statement
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

MAX_TRIES = 3


class ImportEnded(Exception):
    """The import has no use for its helpers any more, or for those of its earlier attempt."""


_MISSING = """
SELECT generate_series(0, CAST(:chunks AS bigint) - 1) AS number
EXCEPT SELECT number FROM import_chunks WHERE import_id = :import_id ORDER BY number
"""


def missing_chunks(uow: UnitOfWork, task: MemberImport) -> list[int]:
    """The numbers of the stored chunks that are not applied."""
    return list(uow.session.scalars(text(_MISSING), {"import_id": task.id, "chunks": task.chunks}))


_WAIT = f"""
INSERT INTO waiting_chunks (import_id, number)
SELECT :import_id, number FROM ({_MISSING}) AS missing ON CONFLICT DO NOTHING
"""  # noqa: S608


def hand_over(uow: UnitOfWork, lease: Lease, task: MemberImport) -> None:
    """Leave an import whose file is split to its helpers; raises ``LeaseLost``."""
    leave_to_helpers(uow, lease)
    let_chunks_in_together(uow, task)
    uow.session.flush()
    uow.session.execute(text(_WAIT), {"import_id": task.id, "chunks": task.chunks})
    _enqueue(uow, lease.job_id, task)


_ALONE = text("SELECT pg_advisory_xact_lock(hashtext('imports.side_by_side'), hashint8(:list_id))")


def let_chunks_in_together(uow: UnitOfWork, task: MemberImport) -> None:
    """Let chunks of this import be applied at the same time, unless those of another one are.

    Chunks of two imports may concern the same people.
    """
    # When two imports into one list come here at the same time, the second finds the first.
    uow.session.execute(_ALONE, {"list_id": task.list_id})
    others = MemberImport.list_id == task.list_id, MemberImport.id != task.id
    are_applied = MemberImport.status == "running", MemberImport.side_by_side
    task.side_by_side = not uow.session.scalar(select(exists().where(*others, *are_applied)))


def _enqueue(uow: UnitOfWork, job_id: int, task: MemberImport) -> None:
    enqueue_job(uow, APPLY_CHUNKS, user_id=None, on_behalf_of=task.user_id, subject_id=job_id)


def run(resources: Resources, lease: Lease) -> None:
    """Apply chunks for one turn; raises what ``applying.commit`` does."""
    gc.disable()  # as for the split
    try:
        try:
            found = _begin(resources, lease)
            if found is not None and not _apply(resources, lease, *found):
                return
        except (ImportEnded, NotInTurn):
            pass
        _leave(resources, lease)
    finally:
        gc.enable()


def _fail_import(uow: UnitOfWork, job: Job) -> None:
    """End the import as its helper ended, unless a chunk may have ended the helper."""
    whole = lock_shared_lease(uow, job.subject_id)
    if whole is None or job.error is None:
        return
    own = WaitingChunk.import_id == whole.subject_id, WaitingChunk.job_id == job.id
    was_lost = job.error["code"] in (JOB_WORKER_LOST.code, JOB_TOO_SLOW.code)
    if was_lost and uow.session.scalar(select(exists().where(*own))):
        task = uow.session.get_one(MemberImport, whole.subject_id)
        _enqueue(uow, whole.job_id, task)
        return
    fail_job(uow, whole, records.restore_error(job))


APPLY_CHUNKS = register_kind(
    JobKind(
        "members.apply",
        Queue.BULK,
        Scope.SUBSCRIPTION_FULL,
        retryable=False,
        run=run,
        on_abandoned=_fail_import,
    )
)


def _begin(resources: Resources, lease: Lease) -> tuple[Lease, MemberImport, int] | None:
    """Return the hold on the import's job, the import, and how many chunks to apply at a time.

    ``None`` when the import has ended. Enqueues one more helper if there is work for it.
    """
    with resources.unit_of_work() as uow:
        # Its own row first, as every transaction that locks both.
        renew_lease(uow, lease)
        whole = lock_shared_lease(uow, lease.subject_id)
        if whole is None:
            return None
        task = uow.session.get_one(MemberImport, whole.subject_id)
        if whole.cancelled.is_set():  # by an API of another release, which does not know the kind
            cancel_job(uow, whole)
            return None
        left = sum(chunk.tries < MAX_TRIES for chunk in _next_chunks(uow, task))
        others = _others(uow, lease, task)
        most = MAX_SHARES if task.side_by_side else 1
        if JobStatus.QUEUED not in others and len(others) + 1 < min(left, most):
            _enqueue(uow, whole.job_id, task)
        is_alone = task.side_by_side and JobStatus.RUNNING not in others
    return whole, task, chunks_at_once.MAX_CHUNKS_AT_ONCE if is_alone else 1


def _next_chunks(uow: UnitOfWork, task: MemberImport) -> Sequence[WaitingChunk]:
    """Return the waiting chunks with opt-outs, or all waiting chunks if none has opt-outs."""
    query = select(WaitingChunk).where(WaitingChunk.import_id == task.id)
    waiting = uow.session.scalars(query.order_by(WaitingChunk.number)).all()
    opt_outs = set(task.opt_out_chunks)
    return [chunk for chunk in waiting if chunk.number in opt_outs] or waiting


def _others(uow: UnitOfWork, lease: Lease, task: MemberImport) -> Sequence[str]:
    """The statuses of the other helpers that have not ended."""
    theirs = records.is_working_on(lease.subject_id, [APPLY_CHUNKS], task.user_id)
    return uow.session.scalars(select(Job.status).where(theirs, Job.id != lease.job_id)).all()


# Claims the first chunk that no helper has claimed. Chunks without opt-outs wait until all chunks
# with opt-outs are applied. A chunk that was tried before can only be the first chunk in a helper's
# turn.
_TAKE = Statement("""
    UPDATE waiting_chunks SET job_id = :job_id, attempt = :attempt, tries = tries + 1
    WHERE import_id = :import_id AND number = (
        SELECT number FROM waiting_chunks AS w
        WHERE import_id = :import_id AND tries < CASE WHEN :is_first THEN :most ELSE 1 END
        AND NOT EXISTS (
            SELECT FROM jobs WHERE id = w.job_id AND attempt = w.attempt AND status = 'running'
        )
        AND (number = ANY(CAST(:opt_outs AS int[])) OR NOT EXISTS (
            SELECT FROM waiting_chunks AS o
            WHERE o.import_id = :import_id AND o.number = ANY(CAST(:opt_outs AS int[]))
        ))
        ORDER BY number LIMIT 1 FOR UPDATE OF w SKIP LOCKED
    ) RETURNING number, tries
    """)
_OWN = "import_id = :import_id AND job_id = :job_id AND attempt = :attempt"
_GIVE_BACK = Statement(f"""
    UPDATE waiting_chunks SET job_id = NULL, attempt = NULL, tries = tries - 1 WHERE {_OWN}
    RETURNING number
    """)  # noqa: S608
_GIVE_UP = Statement(f"""
    UPDATE waiting_chunks SET job_id = NULL, attempt = NULL, tries = :most
    WHERE {_OWN} AND number = :number RETURNING number
    """)  # noqa: S608


def _apply(resources: Resources, lease: Lease, whole: Lease, task: MemberImport, most: int) -> bool:
    """Apply chunks until none is left that no other helper has, or the turn is over.

    ``most``: how many at the same time.

    False when it was the turn that was over.
    """
    turn, tries = Turn(), 0
    mine = {"import_id": task.id, "job_id": lease.job_id, "attempt": lease.attempt}
    may_take = {**mine, "most": MAX_TRIES, "opt_outs": task.opt_out_chunks}

    def commit(chunk: PreparedChunk) -> None:
        try:
            hold = partial(_hold, lease=lease, whole=whole, number=chunk.number)
            applying.commit(resources, task.id, chunk, hold)
        except ChunkBroke:
            resources.database.rows(_GIVE_UP, most=MAX_TRIES, number=chunk.number, **mine)

    try:
        with chunks_at_once.chunks_at_once(most) as under_way:
            while True:
                under_way.make_room()
                lease.check_cancelled()
                found = resources.database.rows(_TAKE, is_first=tries == 0, **may_take)
                if not found and under_way.end_all():
                    # The chunks that were just applied may have contained opt-outs. Other chunks
                    # waited for these opt-outs.
                    continue
                if not found:
                    break
                [(number, tries)] = found
                under_way.start(partial(commit, chunks.fetch(resources, task, number)))
                if turn.is_over() or tries > 1:
                    break
        if not found:
            return True
    except _NO_FAULT_OF_A_CHUNK:
        # A database that is away tells so by the first error.
        with suppress(psycopg2.Error):
            resources.database.rows(_GIVE_BACK, **mine)
        raise
    with resources.unit_of_work() as uow:
        hand_back_job(uow, lease)
    return False


# Errors that end the turn of a helper, whose process goes on.
_NO_FAULT_OF_A_CHUNK = (
    *(DomainError, TransientError, SQLAlchemyError, psycopg2.Error),
    *(ImportEnded, JobCancelled, LeaseLost, NotInTurn),
)


def _hold(uow: UnitOfWork, *, lease: Lease, whole: Lease, number: int) -> Lease:
    """The hold on the import's job, by a helper that still has this chunk.

    Raises ``LeaseLost``, ``ImportEnded``.
    """
    record_progress(uow, lease, done=0)
    now = lock_shared_lease(uow, whole.job_id)
    if now is None or now.attempt != whole.attempt:
        raise ImportEnded
    w = WaitingChunk
    has_it = w.job_id == lease.job_id, w.attempt == lease.attempt
    mine = delete(w).where(w.import_id == whole.subject_id, w.number == number, *has_it)
    if uow.session.scalar(mine.returning(w.number)) is None:
        raise LeaseLost(lease.job_id)
    return now


def _leave(resources: Resources, lease: Lease) -> None:
    """End the helper that finds no chunk, and the import too when no other helper has one."""
    failed = _failed_chunk(resources, lease)
    with resources.unit_of_work() as uow:
        renew_lease(uow, lease)
        whole = lock_shared_lease(uow, lease.subject_id)
        if whole is not None:
            task = uow.session.get_one(MemberImport, whole.subject_id)
            if task.applied == task.chunks:
                endings.end(uow, whole, task)
            elif failed is not None:
                fail_job(uow, whole, failed)
            elif not _others(uow, lease, task):
                # The chunk that it gave back is its own to apply.
                hand_back_job(uow, lease)
                return
        complete_job(uow, lease, {})


def _failed_chunk(resources: Resources, lease: Lease) -> DomainError | None:
    """Return the error of a failed chunk, or ``None`` while other chunks may still be applied."""
    with resources.unit_of_work() as uow:
        of_import = select(Job.subject_id).where(Job.id == lease.subject_id)
        task = uow.session.get(MemberImport, uow.session.scalar(of_import))
        if task is None:
            return None
        waiting = _next_chunks(uow, task)
        if not waiting or any(_can_go_on(uow, chunk) for chunk in waiting):
            return None
    number = waiting[0].number
    first, last = chunks.lines_of(chunks.fetch(resources, task, number))
    error = JOB_OPT_OUTS_FAILED if number in task.opt_out_chunks else JOB_ROWS_FAILED
    return error(first=first, last=last)


def _can_go_on(uow: UnitOfWork, chunk: WaitingChunk) -> bool:
    """Return whether a helper is applying this chunk, or may still try to apply the chunk."""
    if chunk.tries < MAX_TRIES:
        return True
    is_held = Job.attempt == chunk.attempt, Job.status == JobStatus.RUNNING
    query = select(exists().where(Job.id == chunk.job_id, *is_held))
    return chunk.job_id is not None and bool(uow.session.scalar(query))
