"""Runs the job of an import, which reads the rows and adds the members.

The whole file is stored as chunks before any member is added, because any part of the file may be
damaged. Members in an API request can be added before the worker has read the whole request,
because the API has already validated the request.

An import's job reads the file in turns of a few seconds. All turns of the job run in one process,
because an open file can't be moved to another process. If the job's process crashes or has too many
open files, another process reads the file from the start. The module ``helper`` describes how
chunks are applied.
"""

from collections.abc import Generator
from contextlib import closing
from functools import partial
from typing import TypeVar

from sqlalchemy import select

from core.errors.jobs import JOB_ROWS_FAILED
from core.queues import Queue
from core.scopes import Scope
from core.settings.notations import PlanQuota
from models import ImportChunk, MemberImport
from services.access import quotas
from services.jobs.batches import Turn
from services.jobs.kinds import COMPUTING_DEADLINE_SECONDS, JobKind, register_kind
from services.jobs.lease import JobCancelled, Lease, renew_lease
from services.jobs.transitions import record_progress, set_total
from services.subscriptions.imports import endings, helper
from services.subscriptions.imports.chunks import applying
from services.subscriptions.imports.chunks.applying import ChunkFailed
from services.subscriptions.imports.chunks.chunks import (
    ROWS_PER_CHUNK,
    PreparedChunk,
    prepare_chunk,
)
from services.subscriptions.imports.chunks.chunks_at_once import chunk_committer
from services.subscriptions.imports.chunks.stored_chunks import StoredChunks, fetch_chunk
from services.subscriptions.imports.columns.samples import store_samples
from services.subscriptions.imports.file_rows import BlankColumns, FileFacts, FileRows
from services.subscriptions.imports.opened_file import open_source
from services.subscriptions.imports.request_rows import RequestRows
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# How long one process runs an import's job before another process starts to read the file again.
MAX_STAY_SECONDS = 3600.0

Opened = TypeVar("Opened")


def run_import(resources: Resources, lease: Lease) -> Generator[None, None, None]:
    """Run the job that imports a file or the members in a request.

    The generator yields after each turn of the job. All turns of the job must run in the same
    process. Raises a ``DomainError`` such as ``import.empty`` for a file that can't be read. Raises
    ``list.not_found`` if the list was archived. Raises ``quota.exceeded`` if the stored chunks
    exceed the owner's storage quota.
    """
    with resources.unit_of_work() as uow:
        task = uow.session.get(MemberImport, lease.subject_id)
    if task is None:
        raise JobCancelled
    if not task.is_split:
        read_rows = _add_members if task.source == "members" else _store_file
        task = yield from read_rows(resources, lease, task)
    _finish(resources, lease, task)


def _register(name: str) -> JobKind:
    return register_kind(
        JobKind(
            name,
            Queue.BULK,
            Scope.SUBSCRIPTION_FULL,
            retryable=True,
            run=run_import,
            on_abandoned=endings.end_with_job,
            on_restarted=endings.restart_with_job,
            max_stay_seconds=MAX_STAY_SECONDS,
            deadline_seconds=COMPUTING_DEADLINE_SECONDS,
        )
    )


ADD_MEMBERS = _register("members.add")
# A request whose rows have a type, fields or tags. The kind has a name of its own, because workers
# of release 1.1.0 would ignore these values.
ADD_MEMBERS_WITH_VALUES = _register("members.add_values")
IMPORT_FILE = _register("members.import")
IMPORT_SUPPRESSIONS = _register("members.suppress")


def _add_members(
    resources: Resources, lease: Lease, task: MemberImport
) -> Generator[None, None, MemberImport]:
    """Add the members in an API request to the list.

    The generator yields after each turn, and finally returns the ``MemberImport``.
    """
    with closing(RequestRows(resources, task)) as rows:
        while True:
            task = _begin_turn(resources, lease, task, rows)
            is_complete = _add_chunks(resources, lease, task, rows)
            with resources.unit_of_work() as uow:
                renew_lease(uow, lease)
                task = uow.session.get_one(MemberImport, task.id)
                # Record the number of chunks only at the end of a turn, because the chunks may be
                # committed in any order.
                task.chunks = max(task.chunks, rows.count)
                task.received = max(task.received, rows.received)
                task.is_split = is_complete
            if is_complete:
                return task
            yield


def _begin_turn(
    resources: Resources, lease: Lease, task: MemberImport, rows: RequestRows
) -> MemberImport:
    with resources.unit_of_work() as uow:
        # Store the total number of members without recording progress, because progress resets the
        # number of crashes, and a job that crashes repeatedly must fail.
        set_total(uow, lease, total=rows.total)
        task = uow.session.get_one(MemberImport, task.id)
        task.description = {"format": "request", "header": rows.header}
        if rows.total > ROWS_PER_CHUNK:
            helper.enable_parallel_chunks(uow, task)
    return task


def _add_chunks(resources: Resources, lease: Lease, task: MemberImport, rows: RequestRows) -> bool:
    """Add members from a request until the turn is over.

    Return whether all members in the request have been processed. While one chunk is being read
    from the request, up to two preceding chunks are written to the database.
    """
    turn = Turn(resources, lease)
    with resources.unit_of_work() as uow:
        numbers = select(ImportChunk.number).where(ImportChunk.import_id == task.id)
        applied = set(uow.session.scalars(numbers))
    # Optimization: two chunks of one request applied at the same time (decision 17).
    with chunk_committer() as commits:
        while not rows.is_complete:
            lease.check_cancelled()
            chunk = rows.next_chunk()
            # Skip the chunks that were applied before the job moved to this process. The job reads
            # the applied chunks again, which takes less than a second for a whole request.
            if chunk is not None and chunk.number not in applied:
                prepared = prepare_chunk(chunk.number, chunk.rows)
                commits.wait_for_room()
                commits.start(partial(_commit_chunk, resources, lease, task.id, prepared))
                if turn.is_over():
                    break
    return rows.is_complete


def _store_file(
    resources: Resources, lease: Lease, task: MemberImport
) -> Generator[None, None, MemberImport]:
    """Store the rows of a file as chunks.

    The generator yields after each turn, and finally returns the ``MemberImport``. If the end of
    the file shows that preceding rows were misread, the file is read a second time.
    """
    turn = Turn(resources, lease)
    while not task.is_split:
        is_retry = lease.retries + lease.crashes > 0
        opening = open_source(resources, task, is_retry=is_retry)
        source = yield from _run_in_turns(resources, lease, opening)
        with closing(source), closing(FileRows(resources, task, source)) as rows:
            stored = StoredChunks(resources, task)
            facts: FileFacts | None = None
            while facts is None:
                lease.check_cancelled()
                facts = _store_next_chunk(rows, stored)
                task = _record_progress(resources, lease, task, rows, stored, facts=facts)
                # Don't end the turn before the first chunk is stored. Otherwise, small files would
                # stay open between turns, and a hostile header takes tens of megabytes.
                if facts is None and turn.is_over():
                    yield
                    turn = Turn(resources, lease)
            if facts.error is not None:
                raise facts.error
    return task


def _run_in_turns(
    resources: Resources, lease: Lease, steps: Generator[bool | None, None, Opened]
) -> Generator[None, None, Opened]:
    """Run a generator of short steps, and return its result. Yield after each turn.

    A step that yields true waits for another job, which ends the turn.
    """
    with closing(steps):
        turn = Turn(resources, lease)
        while True:
            lease.check_cancelled()
            try:
                lease.is_waiting = bool(next(steps))
            except StopIteration as end:
                lease.is_waiting = False
                opened: Opened = end.value
                return opened
            if lease.is_waiting or turn.is_over():
                yield
                turn = Turn(resources, lease)


def _store_next_chunk(rows: FileRows, stored: StoredChunks) -> FileFacts | None:
    """Store the next chunk of the file.

    When all chunks have been stored, mark the duplicate rows in the next unmarked chunk. Return
    ``None`` as long as chunks remain to be stored or marked, then the ``FileFacts``.
    """
    chunk = rows.next_chunk()
    if chunk is not None:
        stored.store(chunk)
    elif rows.seen.has_stricter_rows and stored.has_unmarked_chunks:
        stored.mark_next_chunk(rows.seen)
    is_stored = rows.is_complete and not (
        rows.seen.has_stricter_rows and stored.has_unmarked_chunks
    )
    return rows.find_facts() if is_stored else None


def _record_progress(
    resources: Resources,
    lease: Lease,
    task: MemberImport,
    rows: FileRows,
    stored: StoredChunks,
    *,
    facts: FileFacts | None,
) -> MemberImport:
    """Record how many rows of the file were read.

    Raises ``LeaseLost`` if another worker has taken over the job. Raises ``quota.exceeded`` if the
    stored chunks exceed the owner's storage quota.
    """
    is_split = facts is not None and facts.are_applied and facts.error is None
    with resources.unit_of_work() as uow:
        # Lock the import's job, and raise ``LeaseLost`` if another worker has taken over the job.
        if is_split:
            record_progress(uow, lease, done=0, total=rows.received)
        elif rows.received > task.received:
            record_progress(uow, lease, done=0)
        else:
            # Record no progress while the file is read a second time, because progress resets the
            # crash counter. A job that crashes repeatedly must fail.
            renew_lease(uow, lease)
        task = uow.session.get_one(MemberImport, task.id)
        new_bytes = max(0, stored.size - task.chunk_bytes)
        if not task.by_operator:
            quotas.require_quota(uow, task.user_id, PlanQuota.STORAGE_MB, more=new_bytes)
        task.chunk_bytes += new_bytes
        task.received = rows.received if is_split else max(task.received, rows.received)
        task.chunks = stored.count if is_split else 0
        task.opt_out_chunks = stored.opt_out_numbers if is_split else []
        task.is_split = is_split
        task.unknown_status = rows.unknown_status
        if task.description is None or facts is not None:
            store_samples(resources, task, rows.samples)
            task.description = rows.description
        if facts is not None and facts.error is None:
            _store_facts(task, facts, rows.blank_columns)
    return task


def _store_facts(task: MemberImport, facts: FileFacts, blank_columns: BlankColumns | None) -> None:
    """Store the facts that are needed to interpret the file, because the file may be read again."""
    task.encoding = facts.encoding or task.encoding
    task.column_forms = dict(facts.forms)
    task.consent_columns = None if facts.consent is None else dict(facts.consent)
    if not facts.are_applied:
        task.chunk_bytes = 0
        task.received = 0
        task.description = None
    if task.columns is not None:
        columns = [{**column} for column in task.columns["columns"]]
        for index, form in facts.forms.items():
            if int(index) < len(columns):
                columns[int(index)]["written"] = form
        if blank_columns is not None:
            for place, column in enumerate(columns):
                column["has_data"] = place not in blank_columns.indexes
        task.columns = {**task.columns, "columns": columns}


def _finish(resources: Resources, lease: Lease, task: MemberImport) -> None:
    """Enqueue a helper job for several chunks, or apply a single chunk and end the import."""
    with resources.unit_of_work() as uow:
        missing = helper.find_missing_chunks(uow, task)
        if missing and task.chunks > 1:
            helper.hand_over_chunks(uow, lease, uow.session.get_one(MemberImport, task.id))
            return
    for number in missing:
        lease.check_cancelled()
        _commit_chunk(resources, lease, task.id, fetch_chunk(resources, task, number))
    with resources.unit_of_work() as uow:
        # To prevent deadlocks, all transactions lock the import's job before the import.
        renew_lease(uow, lease)
        endings.end_import(uow, lease, uow.session.get_one(MemberImport, task.id))


def _commit_chunk(resources: Resources, lease: Lease, import_id: int, chunk: PreparedChunk) -> None:
    def lock_job(uow: UnitOfWork) -> Lease:
        # The lock on the import's job prevents two transactions from updating the row counts at the
        # same time.
        renew_lease(uow, lease)
        return lease

    try:
        applying.commit_chunk(resources, import_id, chunk, lock_job)
    except ChunkFailed as error:
        first, last = error.lines
        raise JOB_ROWS_FAILED(first=first, last=last) from None
