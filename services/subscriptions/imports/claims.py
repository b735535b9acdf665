"""Claims the stored chunks of an import for helpers.

A helper claims a chunk by writing the helper job's id and attempt number into the chunk's row in
``waiting_chunks``. The claim ends with the helper job's current attempt. The transaction that
applies the chunk deletes the row.

Chunks without opt-outs wait until all chunks with opt-outs have been applied.
"""

from collections.abc import Sequence
from contextlib import suppress

import psycopg2
from sqlalchemy import delete, exists, select, text

from models import Job, JobStatus, MemberImport, WaitingChunk
from services.jobs.lease import Lease, LeaseLost
from services.jobs.transitions import lock_shared_lease, record_progress
from storage.database import Statement
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# How often a chunk is tried if applying it kills the worker process.
MAX_TRIES = 3

_MISSING_CHUNKS = """
SELECT generate_series(0, CAST(:chunks AS bigint) - 1) AS number
EXCEPT SELECT number FROM import_chunks WHERE import_id = :import_id ORDER BY number
"""
_ADD_WAITING_CHUNKS = f"""
INSERT INTO waiting_chunks (import_id, number)
SELECT :import_id, number FROM ({_MISSING_CHUNKS}) AS missing ON CONFLICT DO NOTHING
"""  # noqa: S608
_LOCK_DECISION = text(
    "SELECT pg_advisory_xact_lock(hashtext('imports.side_by_side'), hashint8(:list_id))"
)
# Claims the first waiting chunk that no helper has claimed. A chunk that was tried before can be
# claimed only as the first chunk of a helper's turn.
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


class ImportEnded(Exception):
    """Raised if a helper must stop because its import has ended or was restarted."""


class ChunkClaims:
    """The claims of one attempt of a helper's job.

    All helpers of an import share ``import_lease``, the lease of the import's job.

    Attributes:
        tries: how often the last claimed chunk was tried, or 0 before the first claim.
    """

    def __init__(
        self, resources: Resources, lease: Lease, import_lease: Lease, task: MemberImport
    ) -> None:
        self.task = task
        self.tries = 0
        self._database = resources.database
        self._lease = lease
        self._import_lease = import_lease
        self._claim = {"import_id": task.id, "job_id": lease.job_id, "attempt": lease.attempt}
        # The claimed chunks that are neither applied nor abandoned.
        self._numbers: set[int] = set()

    def claim_next(self) -> int | None:
        claimed = self._database.rows(
            _CLAIM_CHUNK,
            is_first=self.tries == 0,
            most=MAX_TRIES,
            opt_outs=self.task.opt_out_chunks,
            **self._claim,
        )
        if not claimed:
            return None
        [(number, self.tries)] = claimed
        self._numbers.add(number)
        return int(number)

    def has_rivals(self) -> bool:
        claim = {"import_id": self.task.id, "job_id": self._lease.job_id}
        return bool(self._database.rows(_OTHER_CLAIMS, **claim))

    def redeem(self, uow: UnitOfWork, number: int) -> Lease:
        """Delete a chunk's claim, and lock the import's job until the transaction ends.

        Return the lease of the import's job. Raises ``LeaseLost`` if the helper hasn't claimed the
        chunk, and ``ImportEnded`` if the import has ended.
        """
        record_progress(uow, self._lease, done=0)
        import_lease = lock_shared_lease(uow, self._import_lease.job_id)
        if import_lease is None or import_lease.attempt != self._import_lease.attempt:
            raise ImportEnded
        chunk = WaitingChunk.import_id == self.task.id, WaitingChunk.number == number
        claim = (
            WaitingChunk.job_id == self._lease.job_id,
            WaitingChunk.attempt == self._lease.attempt,
        )
        deleted = delete(WaitingChunk).where(*chunk, *claim).returning(WaitingChunk.number)
        if uow.session.scalar(deleted) is None:
            raise LeaseLost(self._lease.job_id)
        return import_lease

    def end(self, number: int) -> None:
        """Forget a chunk that was applied or abandoned."""
        self._numbers.discard(number)

    def abandon(self, number: int) -> None:
        """Mark a chunk that can't be applied as tried ``MAX_TRIES`` times."""
        self._database.rows(_ABANDON_CHUNK, most=MAX_TRIES, number=number, **self._claim)

    def release_all(self) -> None:
        """End the remaining claims, so that they don't count as tries."""
        # Ignore a database error, because the caller raises the original error.
        with suppress(psycopg2.Error):
            self._database.rows(_RELEASE_CHUNKS, numbers=list(self._numbers), **self._claim)


def find_missing_chunks(uow: UnitOfWork, task: MemberImport) -> list[int]:
    return list(
        uow.session.scalars(text(_MISSING_CHUNKS), {"import_id": task.id, "chunks": task.chunks})
    )


def add_waiting_chunks(uow: UnitOfWork, task: MemberImport) -> None:
    uow.session.flush()
    uow.session.execute(text(_ADD_WAITING_CHUNKS), {"import_id": task.id, "chunks": task.chunks})


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


def find_next_chunks(uow: UnitOfWork, task: MemberImport) -> Sequence[WaitingChunk]:
    """Return the waiting chunks with opt-outs, or all waiting chunks if none has opt-outs."""
    query = select(WaitingChunk).where(WaitingChunk.import_id == task.id)
    waiting = uow.session.scalars(query.order_by(WaitingChunk.number)).all()
    opt_outs = set(task.opt_out_chunks)
    return [chunk for chunk in waiting if chunk.number in opt_outs] or waiting


def can_be_applied(uow: UnitOfWork, chunk: WaitingChunk) -> bool:
    """Return whether a helper is applying the chunk or may retry it."""
    if chunk.tries < MAX_TRIES:
        return True
    is_running = Job.attempt == chunk.attempt, Job.status == JobStatus.RUNNING
    query = select(exists().where(Job.id == chunk.job_id, *is_running))
    return chunk.job_id is not None and bool(uow.session.scalar(query))


def has_claimed_chunk(uow: UnitOfWork, import_id: int | None, job_id: int) -> bool:
    claims = WaitingChunk.import_id == import_id, WaitingChunk.job_id == job_id
    return bool(uow.session.scalar(select(exists().where(*claims))))
