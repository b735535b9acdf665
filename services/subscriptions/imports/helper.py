"""Runs the helpers of an import, which are jobs that apply chunks in several processes.

While helpers apply the chunks, no worker runs the import job, and the import job's lease doesn't
expire. A helper enqueues one additional helper if several chunks are waiting and no helper is
queued. While only one helper of an import has claimed chunks, the helper applies two chunks at the
same time. If the import is cancelled or the helper loses its lease, the transaction of the chunk is
rolled back.

Two chunks of a file never apply rows with the same address. If two imports into a list are running,
only one of the imports may have several helpers, because both may contain the same people. While an
import with several helpers is running, a second import into the same list has a single helper,
which applies one chunk at a time and locks the list for each chunk.

If applying a chunk kills the worker process, the chunk is tried three times in total. A helper that
retries a chunk claims no other chunk in the same turn, so that a crash doesn't use up the attempts
of harmless chunks. An import fails if a chunk has failed three times, or if the database rejects a
chunk. Before an import fails, its helpers apply all other chunks that can be applied.
"""

from collections.abc import Sequence
from functools import partial

import psycopg2
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from core.errors import DomainError, TransientError
from core.errors.jobs import (
    JOB_OPT_OUTS_FAILED,
    JOB_ROWS_FAILED,
    JOB_WORKER_LOST,
)
from core.queues import Queue
from core.scopes import Scope
from models import Job, JobStatus, MemberImport
from services.access.quotas import MAX_SHARES
from services.jobs import records
from services.jobs.batches import Turn
from services.jobs.kinds import COMPUTING_DEADLINE_SECONDS, JobKind, register_kind
from services.jobs.lease import JobCancelled, Lease, LeaseLost, renew_lease
from services.jobs.outbox import enqueue_job
from services.jobs.transitions import (
    cancel_job,
    complete_job,
    delegate_to_helpers,
    fail_job,
    hand_back_job,
    lock_shared_lease,
)
from services.subscriptions.imports import endings
from services.subscriptions.imports.chunks import applying
from services.subscriptions.imports.chunks.applying import ChunkFailed, EarlierChunkPending
from services.subscriptions.imports.chunks.chunks import PreparedChunk
from services.subscriptions.imports.chunks.chunks_at_once import (
    MAX_CHUNKS_AT_ONCE,
    chunk_committer,
)
from services.subscriptions.imports.chunks.stored_chunks import fetch_chunk
from services.subscriptions.imports.claims import (
    MAX_TRIES,
    ChunkClaims,
    ImportEnded,
    add_waiting_chunks,
    can_be_applied,
    enable_parallel_chunks,
    find_next_chunks,
    has_claimed_chunk,
)
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# Errors with a cause outside a chunk, such as a lost connection. An attempt that ends with an error
# from outside the chunk doesn't count towards the maximum number of attempts.
_ERRORS_UNRELATED_TO_CHUNKS = (
    *(DomainError, TransientError, SQLAlchemyError, psycopg2.Error),
    *(ImportEnded, JobCancelled, LeaseLost, EarlierChunkPending),
)


def hand_over_chunks(uow: UnitOfWork, lease: Lease, task: MemberImport) -> None:
    """Make the stored chunks of an import available to helpers, and enqueue the first helper.

    The caller must have stored all chunks of the import.
    """
    delegate_to_helpers(uow, lease)
    enable_parallel_chunks(uow, task)
    add_waiting_chunks(uow, task)
    _enqueue_helper(uow, lease.job_id, task)


def run_helper(resources: Resources, lease: Lease) -> None:
    try:
        claims = _start_turn(resources, lease)
        if claims is not None and not _apply_chunks(resources, lease, claims):
            with resources.unit_of_work() as uow:
                hand_back_job(uow, lease)
            return
    except (ImportEnded, EarlierChunkPending):
        pass
    _end_helper(resources, lease)


def _end_import_with_helper(uow: UnitOfWork, job: Job) -> None:
    """Replace a helper job whose worker was lost, or fail the import if the helper failed."""
    import_lease = lock_shared_lease(uow, job.subject_id)
    if import_lease is None or job.error is None:
        return
    was_lost = job.error["code"] == JOB_WORKER_LOST.code
    if was_lost and has_claimed_chunk(uow, import_lease.subject_id, job.id):
        task = uow.session.get_one(MemberImport, import_lease.subject_id)
        _enqueue_helper(uow, import_lease.job_id, task)
        return
    fail_job(uow, import_lease, records.restore_error(job))


APPLY_CHUNKS = register_kind(
    JobKind(
        "members.apply",
        Queue.BULK,
        Scope.SUBSCRIPTION_FULL,
        permissions=None,
        retryable=False,
        run=run_helper,
        on_abandoned=_end_import_with_helper,
        deadline_seconds=COMPUTING_DEADLINE_SECONDS,
    )
)


def _enqueue_helper(uow: UnitOfWork, job_id: int, task: MemberImport) -> None:
    enqueue_job(uow, APPLY_CHUNKS, account_id=None, on_behalf_of=task.user_id, subject_id=job_id)


def _start_turn(resources: Resources, lease: Lease) -> ChunkClaims | None:
    """Start a helper's turn, and enqueue an additional helper if several chunks are waiting."""
    with resources.unit_of_work() as uow:
        # To prevent deadlocks, all transactions lock the helper's job before the import's job.
        renew_lease(uow, lease)
        import_lease = lock_shared_lease(uow, lease.subject_id)
        if import_lease is None:
            return None
        task = uow.session.get_one(MemberImport, import_lease.subject_id)
        # An older release that cancels an import ignores the import's helper jobs. The helper job
        # therefore ends the cancelled import's job.
        if import_lease.cancelled.is_set():
            cancel_job(uow, import_lease)
            return None
        waiting = sum(chunk.tries < MAX_TRIES for chunk in find_next_chunks(uow, task))
        statuses = _find_other_helpers(uow, lease, task)
        # Optimization: several helper jobs for one imported file (decision 17).
        max_helpers = MAX_SHARES if task.side_by_side else 1
        if JobStatus.QUEUED not in statuses and len(statuses) + 1 < min(waiting, max_helpers):
            _enqueue_helper(uow, import_lease.job_id, task)
    return ChunkClaims(resources, lease, import_lease, task)


def _find_other_helpers(uow: UnitOfWork, lease: Lease, task: MemberImport) -> Sequence[str]:
    helpers = records.is_working_on(lease.subject_id, [APPLY_CHUNKS], task.user_id)
    return uow.session.scalars(select(Job.status).where(helpers, Job.id != lease.job_id)).all()


def _apply_chunks(resources: Resources, lease: Lease, claims: ChunkClaims) -> bool:
    """Claim and apply chunks until the turn is over or no chunk can be claimed.

    Return true if the helper has nothing left to claim.
    """
    task = claims.task
    turn = Turn(resources, lease)

    def commit(chunk: PreparedChunk) -> None:
        try:
            redeem_claim = partial(claims.redeem, number=chunk.number)
            applying.commit_chunk(resources, task.id, chunk, redeem_claim)
        except ChunkFailed:
            claims.abandon(chunk.number)
        claims.end(chunk.number)

    try:
        # Optimization: two chunks applied at the same time by one helper (decision 17).
        with chunk_committer() as commits:
            while True:
                lease.check_cancelled()
                number = claims.claim_next()
                if number is None:
                    # Retry the claim, because chunks without opt-outs can be claimed as soon as the
                    # last chunk with opt-outs has been applied.
                    if commits.end_all():
                        continue
                    return True
                # Fetch the next chunk while preceding chunks are still being applied.
                chunk = fetch_chunk(resources, task, number)
                # Applying three chunks at the same time is slower on two cores.
                is_alone = task.side_by_side and not claims.has_rivals()
                commits.wait_for_room(MAX_CHUNKS_AT_ONCE if is_alone else 1)
                commits.start(partial(commit, chunk))
                if turn.is_over() or claims.tries > 1:
                    break
    except _ERRORS_UNRELATED_TO_CHUNKS:
        claims.release_all()
        raise
    return False


def _end_helper(resources: Resources, lease: Lease) -> None:
    """End a helper that has found no waiting chunk. End the import if every chunk has been applied
    or has failed.
    """
    chunk_error = _find_chunk_error(resources, lease)
    with resources.unit_of_work() as uow:
        renew_lease(uow, lease)
        import_lease = lock_shared_lease(uow, lease.subject_id)
        if import_lease is not None:
            task = uow.session.get_one(MemberImport, import_lease.subject_id)
            if task.applied == task.chunks:
                endings.end_import(uow, import_lease, task)
            elif chunk_error is not None:
                fail_job(uow, import_lease, chunk_error)
            elif not _find_other_helpers(uow, lease, task):
                # Put the helper's job back into the queue if unapplied chunks remain and no other
                # helper exists.
                hand_back_job(uow, lease)
                return
        complete_job(uow, lease, {})


def _find_chunk_error(resources: Resources, lease: Lease) -> DomainError | None:
    with resources.unit_of_work() as uow:
        import_id = uow.session.scalar(select(Job.subject_id).where(Job.id == lease.subject_id))
        task = uow.session.get(MemberImport, import_id)
        if task is None:
            return None
        waiting = find_next_chunks(uow, task)
        if not waiting or any(can_be_applied(uow, chunk) for chunk in waiting):
            return None
    number = waiting[0].number
    first, last = fetch_chunk(resources, task, number).first_and_last_line
    error = JOB_OPT_OUTS_FAILED if number in task.opt_out_chunks else JOB_ROWS_FAILED
    return error(first=first, last=last)
