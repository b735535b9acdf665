"""The job of an import: it reads the file in turns, and leaves the chunks to helper jobs.

It adds the members of one request while it reads them: the API has checked the body, so its first
rows need not wait for its last, as those of a file do, of which any part may be damaged.
"""

import gc
from functools import partial

from sqlalchemy import select

from core.errors.jobs import JOB_ROWS_FAILED
from core.queues import Queue
from core.scopes import Scope
from core.settings.notations import PlanQuota
from models import ImportChunk, MemberImport
from services.access import quotas
from services.jobs.batches import Turn
from services.jobs.kinds import JobKind, register_kind
from services.jobs.lease import JobCancelled, Lease, renew_lease
from services.jobs.transitions import hand_back_job, record_progress, set_total
from services.subscriptions.imports import applying, chunks, chunks_at_once, endings, helper_jobs
from services.subscriptions.imports import split as splitting
from services.subscriptions.imports.applying import ChunkBroke
from services.subscriptions.imports.chunks import ROWS_PER_CHUNK, PreparedChunk
from services.subscriptions.imports.samples import store_samples
from services.subscriptions.imports.split import FileSplit
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# A file of so long a reading is read anew by another process.
MAX_STAY_SECONDS = 3600.0


def run(resources: Resources, lease: Lease) -> bool:
    """Take one turn; true when the next one must be in this process, which keeps the file open.

    Raises a ``DomainError`` with a code ``import.…`` for a file that can't be read,
    ``list.not_found`` for a list that was archived, and ``quota.exceeded`` for the chunks.
    """
    # Rows make no reference cycles, and the search for cycles among millions of rows takes a
    # quarter of the time.
    gc.disable()
    try:
        with resources.unit_of_work() as uow:
            task = uow.session.get(MemberImport, lease.subject_id)
        if task is None:
            raise JobCancelled
        if not task.is_split:
            read = _add if task.source == "members" else _split
            task, is_kept = read(resources, lease, task)
            if is_kept:
                return True
        if task.is_split:
            _finish(resources, lease, task)
            return False
        with resources.unit_of_work() as uow:
            hand_back_job(uow, lease)
        return False
    finally:
        gc.enable()


def _register(name: str) -> JobKind:
    return register_kind(
        JobKind(
            name,
            Queue.BULK,
            Scope.SUBSCRIPTION_FULL,
            retryable=True,
            run=run,
            on_abandoned=endings.end_with_job,
            on_restarted=endings.go_on_with_job,
            max_stay_seconds=MAX_STAY_SECONDS,
        )
    )


ADD_MEMBERS = _register("members.add")
IMPORT_FILE = _register("members.import")
IMPORT_SUPPRESSIONS = _register("members.suppress")


def _add(resources: Resources, lease: Lease, task: MemberImport) -> tuple[MemberImport, bool]:
    """Add the members of a request for one turn; whether this process keeps the request.

    Two chunks are written at the same time while the next one is read.
    """
    turn = Turn()
    split = splitting.take_split(resources, task)
    with resources.unit_of_work() as uow:
        # No progress yet: a chunk that kills its process does so three times.
        set_total(uow, lease, total=split.total)
        task = uow.session.get_one(MemberImport, task.id)
        task.description = {**split.description, "header": split.header}
        if (split.total or 0) > ROWS_PER_CHUNK:
            helper_jobs.let_chunks_in_together(uow, task)
        query = select(ImportChunk.number).where(ImportChunk.import_id == task.id)
        applied = set(uow.session.scalars(query))
    with chunks_at_once.chunks_at_once(chunks_at_once.MAX_CHUNKS_AT_ONCE) as under_way:
        while not split.is_complete:
            lease.check_cancelled()
            number = split.number
            # After a restart it passes over the chunks before in less than a second.
            if split.read_next() and number not in applied:
                under_way.make_room()
                chunk = chunks.prepare(number, split.rows)
                under_way.start(partial(_commit, resources, lease, task.id, chunk))
                if turn.is_over():
                    break
    with resources.unit_of_work() as uow:
        renew_lease(uow, lease)
        task = uow.session.get_one(MemberImport, task.id)
        # Not with each chunk, of which a later one may be the first to end.
        task.chunks = max(task.chunks, split.number)
        task.received = max(task.received, split.received)
        task.is_split = split.is_complete
    return task, _is_kept(resources, task, split)


def _commit(resources: Resources, lease: Lease, import_id: int, chunk: PreparedChunk) -> None:
    def hold(uow: UnitOfWork) -> Lease:
        # Keeps the other chunk from being counted meanwhile.
        renew_lease(uow, lease)
        return lease

    try:
        applying.commit(resources, import_id, chunk, hold)
    except ChunkBroke as error:
        first, last = error.lines
        raise JOB_ROWS_FAILED(first=first, last=last) from None


def _split(resources: Resources, lease: Lease, task: MemberImport) -> tuple[MemberImport, bool]:
    """Read the file for one turn; whether this process keeps it open for the next."""
    turn = Turn()
    split = splitting.take_split(resources, task)
    while not task.is_split and not turn.is_over():
        lease.check_cancelled()
        split.read_next()
        facts = split.settle()
        with resources.unit_of_work() as uow:
            # Fails if another worker has the job now, in the transaction of the progress.
            is_split = split.is_complete and facts.is_read_so and facts.error is None
            if is_split:
                record_progress(uow, lease, done=0, total=split.received)
            elif split.received > task.received:
                record_progress(uow, lease, done=0)
            else:
                # While the file is read again, no progress is recorded. Otherwise a job whose
                # process crashes repeatedly would never fail.
                renew_lease(uow, lease)
            task = uow.session.get_one(MemberImport, task.id)
            new_bytes = max(0, split.stored_bytes - task.chunk_bytes)
            if not task.by_operator:
                quotas.require(uow, task.user_id, PlanQuota.STORAGE_MB, more=new_bytes)
            task.chunk_bytes += new_bytes
            task.received = split.received if is_split else max(task.received, split.received)
            task.chunks = split.number if is_split else 0
            task.opt_out_chunks = split.opt_out_chunks if is_split else []
            task.is_split = is_split
            task.unknown_status = split.unknown_status
            if split.samples is not None and (task.description is None or split.is_complete):
                store_samples(resources, task, split.samples)
            if split.is_complete or task.description is None:
                task.description = {**split.description, "header": split.header}
            if is_split or not facts.is_read_so:
                splitting.note_facts(task, facts)
        if facts.error is not None:
            raise facts.error
        if not facts.is_read_so:
            split.close()
            split = splitting.take_split(resources, task)
    return task, _is_kept(resources, task, split)


def _is_kept(resources: Resources, task: MemberImport, split: FileSplit) -> bool:
    """Return whether this process keeps the split open for the next turn; closes it otherwise."""
    if task.is_split:
        split.close()
        return False
    with resources.unit_of_work() as uow:
        is_kept = MemberImport.id.in_(splitting.kept_splits()), MemberImport.status == "running"
        unfinished = select(MemberImport.id).where(*is_kept, MemberImport.is_split.is_(False))
        waiting = uow.session.scalars(unfinished).all()
    return splitting.keep_split(task, split, waiting)


def _finish(resources: Resources, lease: Lease, task: MemberImport) -> None:
    """Apply the only chunk if it is not applied, and end the import; helper jobs do several."""
    with resources.unit_of_work() as uow:
        missing = helper_jobs.missing_chunks(uow, task)
        if missing and task.chunks > 1:
            helper_jobs.hand_over(uow, lease, uow.session.get_one(MemberImport, task.id))
            return
    for number in missing:
        lease.check_cancelled()
        _commit(resources, lease, task.id, chunks.fetch(resources, task, number))
    with resources.unit_of_work() as uow:
        # Its own row first, as every transaction that locks both.
        renew_lease(uow, lease)
        task = uow.session.get_one(MemberImport, task.id)
        endings.end(uow, lease, task)
