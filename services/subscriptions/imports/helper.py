"""Runs the helpers of an import, which are jobs that apply chunks in several processes.

- The import job stores the chunks of the file, inserts a row per chunk into ``waiting_chunks``, and
  enqueues a helper. While helpers apply the chunks, no worker runs the import job, and the import
  job's lease doesn't expire.
- A helper claims a chunk by writing the helper job's id and attempt number into the chunk's row in
  ``waiting_chunks``. A helper enqueues one additional helper if several chunks are waiting and no
  helper is queued.
- A helper applies each claimed chunk in one transaction. The transaction checks the leases of the
  helper and the import job, and deletes the chunk's row from ``waiting_chunks``.
- If a helper finds that all chunks have been applied, the helper ends the import and the import
  job.

A helper ends when no chunk of its import is waiting. While only one helper of an import has claimed
chunks, the helper applies two chunks at the same time. A helper's claim on a chunk ends with the
helper job's current attempt. If the import is cancelled or the helper loses its lease, the
transaction of the chunk is rolled back.

Two chunks of a file never apply rows with the same address. If two imports into a list are running,
only one of the imports may have several helpers, because both may contain the same people. While an
import with several helpers is running, a second import into the same list has a single helper,
which locks the list for each chunk.

Chunks without opt-outs wait until all chunks with opt-outs have been applied.

If applying a chunk kills the worker process, the chunk is tried three times in total. A helper that
retries a chunk claims no other chunk in the same turn, so that a crash doesn't use up the attempts
of harmless chunks. An import fails if a chunk has failed three times, or if the database rejects a
chunk. Before an import fails, its helpers apply all other chunks that can be applied.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import psycopg2
from sqlalchemy import delete, exists, select, text
from sqlalchemy.exc import SQLAlchemyError

from core.errors import DomainError, TransientError
from core.errors.jobs import (
    JOB_OPT_OUTS_FAILED,
    JOB_ROWS_FAILED,
    JOB_WORKER_LOST,
)
from core.queues import Queue
from core.scopes import Scope
from models import Job, JobStatus, MemberImport, WaitingChunk
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
    record_progress,
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
from storage.database import Statement
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

MAX_TRIES = 3


class ImportEnded(Exception):
    """Raised if a helper must stop because its import has ended or was restarted."""


# Errors with a cause outside a chunk, such as a lost connection. An attempt that ends with an error
# from outside the chunk doesn't count towards the maximum number of attempts.
_ERRORS_UNRELATED_TO_CHUNKS = (
    *(DomainError, TransientError, SQLAlchemyError, psycopg2.Error),
    *(ImportEnded, JobCancelled, LeaseLost, EarlierChunkPending),
)


@dataclass(frozen=True)
class _HelperTask:
    """The import whose chunks a helper applies, and the lease of the import's job.

    All helpers of an import share the lease of the import's job.
    """

    import_lease: Lease
    task: MemberImport


_MISSING_CHUNKS = """
SELECT generate_series(0, CAST(:chunks AS bigint) - 1) AS number
EXCEPT SELECT number FROM import_chunks WHERE import_id = :import_id ORDER BY number
"""


def find_missing_chunks(uow: UnitOfWork, task: MemberImport) -> list[int]:
    """Return the numbers of the import's chunks that haven't been applied."""
    return list(
        uow.session.scalars(text(_MISSING_CHUNKS), {"import_id": task.id, "chunks": task.chunks})
    )


_ADD_WAITING_CHUNKS = f"""
INSERT INTO waiting_chunks (import_id, number)
SELECT :import_id, number FROM ({_MISSING_CHUNKS}) AS missing ON CONFLICT DO NOTHING
"""  # noqa: S608


def hand_over_chunks(uow: UnitOfWork, lease: Lease, task: MemberImport) -> None:
    """Make the stored chunks of an import available to helpers, and enqueue the first helper.

    Raises ``LeaseLost``. ``lease`` is the lease of the import's job. The caller must have stored
    all chunks of the import.
    """
    delegate_to_helpers(uow, lease)
    enable_parallel_chunks(uow, task)
    uow.session.flush()
    uow.session.execute(text(_ADD_WAITING_CHUNKS), {"import_id": task.id, "chunks": task.chunks})
    _enqueue_helper(uow, lease.job_id, task)


_LOCK_DECISION = text(
    "SELECT pg_advisory_xact_lock(hashtext('imports.side_by_side'), hashint8(:list_id))"
)


def enable_parallel_chunks(uow: UnitOfWork, task: MemberImport) -> None:
    """Enable parallel chunks for an import, unless another import into the list uses them.

    Only one import into a list may apply chunks in parallel, because two imports may contain the
    same people.
    """
    # Acquire a lock per list, so that only one of two simultaneous imports may apply chunks in
    # parallel.
    uow.session.execute(_LOCK_DECISION, {"list_id": task.list_id})
    are_other_imports = MemberImport.list_id == task.list_id, MemberImport.id != task.id
    are_allowed = MemberImport.status == "running", MemberImport.side_by_side
    task.side_by_side = not uow.session.scalar(
        select(exists().where(*are_other_imports, *are_allowed))
    )


def run_helper(resources: Resources, lease: Lease) -> None:
    """Apply chunks of an import during one turn of a helper's job.

    Raises the same errors as ``applying.commit_chunk``.
    """
    try:
        helper_task = _start_turn(resources, lease)
        if helper_task is not None and not _apply_chunks(resources, lease, helper_task):
            return
    except (ImportEnded, EarlierChunkPending):
        pass
    _end_helper(resources, lease)


def _end_import_with_helper(uow: UnitOfWork, job: Job) -> None:
    """Replace a helper job whose worker was lost, or fail the import if the helper failed.

    The new helper job retries the chunk that was being applied when the worker was lost. A chunk is
    tried at most ``MAX_TRIES`` times.
    """
    import_lease = lock_shared_lease(uow, job.subject_id)
    if import_lease is None or job.error is None:
        return
    import_id = import_lease.subject_id
    claims = WaitingChunk.import_id == import_id, WaitingChunk.job_id == job.id
    was_lost = job.error["code"] == JOB_WORKER_LOST.code
    if was_lost and uow.session.scalar(select(exists().where(*claims))):
        task = uow.session.get_one(MemberImport, import_id)
        _enqueue_helper(uow, import_lease.job_id, task)
        return
    fail_job(uow, import_lease, records.restore_error(job))


APPLY_CHUNKS = register_kind(
    JobKind(
        "members.apply",
        Queue.BULK,
        Scope.SUBSCRIPTION_FULL,
        retryable=False,
        run=run_helper,
        on_abandoned=_end_import_with_helper,
        deadline_seconds=COMPUTING_DEADLINE_SECONDS,
    )
)


def _enqueue_helper(uow: UnitOfWork, job_id: int, task: MemberImport) -> None:
    enqueue_job(uow, APPLY_CHUNKS, user_id=None, on_behalf_of=task.user_id, subject_id=job_id)


def _start_turn(resources: Resources, lease: Lease) -> _HelperTask | None:
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
        waiting = sum(chunk.tries < MAX_TRIES for chunk in _find_next_chunks(uow, task))
        statuses = _find_other_helpers(uow, lease, task)
        # Optimization: several helper jobs for one imported file (decision 17).
        max_helpers = MAX_SHARES if task.side_by_side else 1
        if JobStatus.QUEUED not in statuses and len(statuses) + 1 < min(waiting, max_helpers):
            _enqueue_helper(uow, import_lease.job_id, task)
    return _HelperTask(import_lease, task)


def _find_next_chunks(uow: UnitOfWork, task: MemberImport) -> Sequence[WaitingChunk]:
    """Return the chunks with opt-outs that are waiting to be applied.

    If no waiting chunk contains opt-outs, return all waiting chunks.
    """
    query = select(WaitingChunk).where(WaitingChunk.import_id == task.id)
    waiting = uow.session.scalars(query.order_by(WaitingChunk.number)).all()
    opt_outs = set(task.opt_out_chunks)
    return [chunk for chunk in waiting if chunk.number in opt_outs] or waiting


def _find_other_helpers(uow: UnitOfWork, lease: Lease, task: MemberImport) -> Sequence[str]:
    """Return the job statuses of all other unfinished helpers of the import."""
    helpers = records.is_working_on(lease.subject_id, [APPLY_CHUNKS], task.user_id)
    return uow.session.scalars(select(Job.status).where(helpers, Job.id != lease.job_id)).all()


# Claims the first waiting chunk that no helper has claimed. Chunks without opt-outs wait until all
# chunks with opt-outs have been applied. A chunk that was tried before can be claimed only as the
# first chunk of a helper's turn.
_CLAIM_CHUNK = Statement("""
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
_OTHER_CLAIMS = Statement("""
    SELECT w.number FROM waiting_chunks AS w JOIN jobs AS j ON j.id = w.job_id
    WHERE w.import_id = :import_id AND w.job_id <> :job_id
    AND j.attempt = w.attempt AND j.status = 'running' LIMIT 1
    """)
# Stops counting the claims of a helper that could not apply its chunks. If the helper was so late
# that another helper has claimed a chunk since then, the other claim remains.
_RELEASE_CHUNKS = Statement("""
    UPDATE waiting_chunks SET tries = tries - 1,
        job_id = nullif(job_id, CASE WHEN attempt = :attempt THEN :job_id END),
        attempt = nullif(attempt, CASE WHEN job_id = :job_id THEN :attempt END)
    WHERE import_id = :import_id AND number = ANY(CAST(:numbers AS int[])) RETURNING number
    """)
_ABANDON_CHUNK = Statement("""
    UPDATE waiting_chunks SET job_id = NULL, attempt = NULL, tries = :most
    WHERE import_id = :import_id AND job_id = :job_id AND attempt = :attempt AND number = :number
    RETURNING number
    """)


def _apply_chunks(resources: Resources, lease: Lease, helper_task: _HelperTask) -> bool:
    """Claim and apply chunks until the turn is over or no chunk can be claimed.

    Return true if the helper has nothing left to claim. Return false if the time of the turn ran
    out first, because then the helper's job must be queued again.
    """
    task = helper_task.task
    turn = Turn(resources, lease)
    tries = 0
    claim = {"import_id": task.id, "job_id": lease.job_id, "attempt": lease.attempt}
    candidates = {**claim, "most": MAX_TRIES, "opt_outs": task.opt_out_chunks}
    numbers = set[int]()

    def commit(chunk: PreparedChunk) -> None:
        try:
            lock_job = partial(
                _lock_import_job, lease=lease, helper_task=helper_task, number=chunk.number
            )
            applying.commit_chunk(resources, task.id, chunk, lock_job)
        except ChunkFailed:
            resources.database.rows(_ABANDON_CHUNK, most=MAX_TRIES, number=chunk.number, **claim)
        numbers.discard(chunk.number)

    try:
        # Optimization: two chunks applied at the same time by one helper (decision 17).
        with chunk_committer() as commits:
            while True:
                lease.check_cancelled()
                claims = resources.database.rows(_CLAIM_CHUNK, is_first=tries == 0, **candidates)
                if not claims and commits.end_all():
                    # Retry the claim, because chunks without opt-outs can be claimed as soon as the
                    # last chunk with opt-outs has been applied.
                    continue
                if not claims:
                    break
                [(number, tries)] = claims
                numbers.add(number)
                # Fetch the next chunk while preceding chunks are still being applied.
                chunk = fetch_chunk(resources, task, number)
                commits.wait_for_room(_find_max_chunks(resources, lease, task))
                commits.start(partial(commit, chunk))
                if turn.is_over() or tries > 1:
                    break
        if not claims:
            return True
    except _ERRORS_UNRELATED_TO_CHUNKS:
        # Ignore a database error while the claim is released, because the original error is raised
        # below.
        with suppress(psycopg2.Error):
            resources.database.rows(_RELEASE_CHUNKS, numbers=list(numbers), **claim)
        raise
    with resources.unit_of_work() as uow:
        hand_back_job(uow, lease)
    return False


def _find_max_chunks(resources: Resources, lease: Lease, task: MemberImport) -> int:
    """Return how many chunks a helper may apply at the same time.

    A helper applies at most two chunks at the same time, because applying three is slower on two
    cores.
    """
    claim = {"import_id": task.id, "job_id": lease.job_id}
    if not task.side_by_side or resources.database.rows(_OTHER_CLAIMS, **claim):
        return 1
    return MAX_CHUNKS_AT_ONCE


def _lock_import_job(
    uow: UnitOfWork, *, lease: Lease, helper_task: _HelperTask, number: int
) -> Lease:
    """Lock the import's job until the transaction ends, and return the job's lease.

    Delete the chunk's row in ``waiting_chunks``, which contains the helper's claim. Raises
    ``LeaseLost`` if the helper hasn't claimed the chunk. Raises ``ImportEnded`` if the import has
    ended.
    """
    record_progress(uow, lease, done=0)
    import_lease = lock_shared_lease(uow, helper_task.import_lease.job_id)
    if import_lease is None or import_lease.attempt != helper_task.import_lease.attempt:
        raise ImportEnded
    chunk = WaitingChunk.import_id == helper_task.task.id, WaitingChunk.number == number
    claim = WaitingChunk.job_id == lease.job_id, WaitingChunk.attempt == lease.attempt
    deleted = delete(WaitingChunk).where(*chunk, *claim).returning(WaitingChunk.number)
    if uow.session.scalar(deleted) is None:
        raise LeaseLost(lease.job_id)
    return import_lease


def _end_helper(resources: Resources, lease: Lease) -> None:
    """End a helper that has found no waiting chunk.

    End the import if every chunk has been applied or has failed.
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
    """Return the error of a failed chunk, or ``None`` if any waiting chunk can be applied."""
    with resources.unit_of_work() as uow:
        import_id = uow.session.scalar(select(Job.subject_id).where(Job.id == lease.subject_id))
        task = uow.session.get(MemberImport, import_id)
        if task is None:
            return None
        waiting = _find_next_chunks(uow, task)
        if not waiting or any(_can_be_applied(uow, chunk) for chunk in waiting):
            return None
    number = waiting[0].number
    first, last = fetch_chunk(resources, task, number).first_and_last_line
    error = JOB_OPT_OUTS_FAILED if number in task.opt_out_chunks else JOB_ROWS_FAILED
    return error(first=first, last=last)


def _can_be_applied(uow: UnitOfWork, chunk: WaitingChunk) -> bool:
    """Return whether a helper is applying the chunk or may retry it."""
    if chunk.tries < MAX_TRIES:
        return True
    is_running = Job.attempt == chunk.attempt, Job.status == JobStatus.RUNNING
    query = select(exists().where(Job.id == chunk.job_id, *is_running))
    return chunk.job_id is not None and bool(uow.session.scalar(query))
