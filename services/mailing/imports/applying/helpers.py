"""The helpers of an import: jobs that apply its chunks at the same time, in as many processes.

Once a file is split, its job leaves the rest to a first helper. A helper that has its turn takes
the first chunk that no other has, and enqueues one more helper while chunks are left and none
waits. So there is one for each process that is free, and one for the next. A helper that finds no
chunk ends; the last one ends the import.

A helper's claim on a chunk counts for as long as that attempt at its job runs. Each chunk is
written under both fences, the helper's and that of the import's job: when the import was cancelled
or a helper lost its lease, the chunk is rolled back. Chunks of one file have no address in common.
An import that meets another one on its list has one helper, and they take turns.
"""

import gc
from contextlib import closing
from functools import partial

from sqlalchemy import delete, func, select, text

from core.errors import DomainError, Kind
from core.lanes import Lane
from core.scopes import Scope
from models import Job, JobStatus, MemberImport, WaitingChunk
from services.access.quotas import MAX_SHARES
from services.jobs import kinds, outbox, records
from services.jobs import lease as leases
from services.jobs.lease import Lease, LeaseLost
from services.mailing.imports import endings
from services.mailing.imports.applying import chunk_steps
from services.mailing.imports.applying.apply import NotInTurn, PreparedChunk
from services.mailing.imports.prefetch import Prefetch
from services.mailing.imports.turns import Turn
from storage.database import Statement
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork


class ImportEnded(Exception):
    """The import has no use for its helpers any more, or for those of its earlier attempt."""


def _fail_import(uow: UnitOfWork, job: Job) -> None:
    """End the import as its helper ended."""
    whole = leases.shared_by_helpers(uow, job.subject_id)
    if whole is None or job.error is None:
        return
    error = job.error
    facts = error.get("facts", {})
    refusal = DomainError(Kind(error["kind"]), error["code"], error["message"], facts=facts)
    leases.fail(uow, whole, refusal)


# No user sees it: what it does is shown as the progress of the import's job.
APPLY_CHUNKS = kinds.register(
    kinds.JobKind(
        name="members.apply",
        lane=Lane.BULK,
        scope=Scope.SUBSCRIPTION_FULL,
        retryable=False,
        on_abandoned=_fail_import,
    )
)


def missing_chunks(uow: UnitOfWork, task: MemberImport) -> list[int]:
    """The numbers of the stored chunks that are not applied."""
    return list(uow.session.scalars(text(_MISSING), {"import_id": task.id, "chunks": task.chunks}))


def hand_over(uow: UnitOfWork, lease: Lease, task: MemberImport) -> None:
    """Leave an import whose file is split to its helpers; raises ``LeaseLost``."""
    leases.leave_to_helpers(uow, lease)
    let_chunks_in_together(uow, task)
    uow.session.flush()
    uow.session.execute(text(_WAIT), {"import_id": task.id, "chunks": task.chunks})
    _enqueue(uow, lease.job_id, task, lease.request_id)


def let_chunks_in_together(uow: UnitOfWork, task: MemberImport) -> None:
    """Let chunks of this import be applied at the same time, unless those of another one are.

    Chunks of two imports may concern the same people.
    """
    # Of two imports into one list that come here at the same time, one finds the other.
    uow.session.execute(_ALONE, {"list_id": task.list_id})
    another = select(func.count()).where(
        MemberImport.list_id == task.list_id,
        MemberImport.id != task.id,
        MemberImport.status == "running",
        MemberImport.side_by_side,
    )
    task.side_by_side = not uow.session.scalar(another)


def _enqueue(uow: UnitOfWork, job_id: int, task: MemberImport, request_id: str | None) -> None:
    outbox.enqueue(
        uow,
        APPLY_CHUNKS,
        user_id=None,
        on_behalf_of=task.user_id,
        subject_id=job_id,
        request_id=request_id,
    )


def run(resources: Resources, lease: Lease) -> None:
    """Apply chunks for one turn; raises as ``chunk_steps.commit`` does."""
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


def _begin(resources: Resources, lease: Lease) -> tuple[Lease, MemberImport] | None:
    """The hold on the import's job and the import, ``None`` when it has ended; a helper more."""
    with resources.unit_of_work() as uow:
        # Its own row first, as every transaction that locks both.
        leases.renew(uow, lease)
        whole = leases.shared_by_helpers(uow, lease.subject_id)
        if whole is None:
            return None
        task = uow.session.get_one(MemberImport, whole.subject_id)
        seen = uow.session.scalar(select(Job.progress_done).where(Job.id == lease.job_id))
        if task.applied != seen:
            # Any helper's chunk is progress: only when none is left but one does it stand in doubt.
            leases.progress(uow, lease, done=task.applied)
        if whole.cancelled.is_set():  # by an API of another release, which does not know the kind
            leases.cancel(uow, whole)
            return None
        if _needs_another(uow, lease, task):
            _enqueue(uow, whole.job_id, task, lease.request_id)
    return whole, task


def _needs_another(uow: UnitOfWork, lease: Lease, task: MemberImport) -> bool:
    """Whether chunks are left for another helper, and none waits for its turn."""
    waiting = select(func.count()).where(WaitingChunk.import_id == task.id)
    left = uow.session.scalar(waiting) or 0
    others = _others(uow, lease, task)
    most = MAX_SHARES if task.side_by_side else 1
    return JobStatus.QUEUED not in others and len(others) + 1 < min(left, most)


def _others(uow: UnitOfWork, lease: Lease, task: MemberImport) -> list[str]:
    """The statuses of the other helpers that have not ended."""
    theirs = records.working_on(lease.subject_id, [APPLY_CHUNKS], task.user_id)
    query = select(Job.status).where(theirs, Job.id != lease.job_id)
    return list(uow.session.scalars(query))


def _apply(resources: Resources, lease: Lease, whole: Lease, task: MemberImport) -> bool:
    """Apply chunks until none is left that no other helper has, or the turn is over.

    False when it was the turn that was over.
    """
    turn = Turn()

    def take() -> PreparedChunk | None:
        # The next chunk is prepared while one is applied: after the turn it would be for nothing.
        if turn.is_over():
            return None
        mine = {"import_id": task.id, "job_id": lease.job_id, "attempt": lease.attempt}
        found = resources.database.rows(_TAKE, **mine)
        return chunk_steps.fetch(resources, task, found[0][0]) if found else None

    with closing(Prefetch(take)) as chunks:
        while (chunk := chunks.take()) is not None:
            lease.check_cancelled()
            hold = partial(_hold, lease=lease, whole=whole, number=chunk.number)
            chunk_steps.commit(resources, task.id, chunk, hold)
    if turn.is_over():
        with resources.unit_of_work() as uow:
            leases.yield_turn(uow, lease)
        return False
    return True


def _hold(uow: UnitOfWork, *, lease: Lease, whole: Lease, number: int) -> Lease:
    """The hold on the import's job, by a helper that still has this chunk.

    Raises ``LeaseLost``, ``ImportEnded``.
    """
    leases.progress(uow, lease, done=0)
    now = leases.shared_by_helpers(uow, whole.job_id)
    if now is None or now.attempt != whole.attempt:
        raise ImportEnded
    mine = (
        WaitingChunk.import_id == whole.subject_id,
        WaitingChunk.number == number,
        WaitingChunk.job_id == lease.job_id,
        WaitingChunk.attempt == lease.attempt,
    )
    if uow.session.scalar(delete(WaitingChunk).where(*mine).returning(WaitingChunk.number)) is None:
        raise LeaseLost(lease.job_id)
    return now


def _leave(resources: Resources, lease: Lease) -> None:
    """End the helper that finds no chunk, and with the last chunk applied the import too."""
    with resources.unit_of_work() as uow:
        leases.renew(uow, lease)
        whole = leases.shared_by_helpers(uow, lease.subject_id)
        if whole is not None:
            task = uow.session.get_one(MemberImport, whole.subject_id)
            if task.applied == task.chunks:
                endings.end(uow, resources.settings, whole, task)
            elif not _others(uow, lease, task):
                # The chunk that it gave back is its own to apply.
                leases.yield_turn(uow, lease)
                return
        leases.succeed(uow, lease, {})


_ALONE = text("SELECT pg_advisory_xact_lock(hashtext('imports.side_by_side'), hashint8(:list_id))")
_MISSING = """
SELECT generate_series(0, CAST(:chunks AS bigint) - 1) AS number
EXCEPT SELECT number FROM import_chunks WHERE import_id = :import_id ORDER BY number
"""
_WAIT = f"""
INSERT INTO waiting_chunks (import_id, number)
SELECT :import_id, number FROM ({_MISSING}) AS missing ON CONFLICT DO NOTHING
"""  # noqa: S608
# The first chunk that no helper has.
_TAKE = Statement(
    """
    UPDATE waiting_chunks SET job_id = :job_id, attempt = :attempt
    WHERE import_id = :import_id AND number = (
        SELECT number FROM waiting_chunks AS w
        WHERE import_id = :import_id AND NOT EXISTS (
            SELECT FROM jobs WHERE id = w.job_id AND attempt = w.attempt AND status = 'running'
        )
        ORDER BY number LIMIT 1 FOR UPDATE OF w SKIP LOCKED
    ) RETURNING number
    """
)
