"""Runs the job of an import, which reads the rows and adds the members.

The whole file is stored as chunks before any member is added, because any part of the file may be
damaged. Members in an API request can be added before the worker has read the whole request,
because the API has already validated the request.

An import's job reads the file in turns of a few seconds. All turns of the job run in one process,
because an open file can't be moved to another process. If the job's process crashes or has too many
open files, another process reads the file from the start.
"""

from collections.abc import Generator
from contextlib import closing
from typing import Protocol

from core.permissions import Permission
from core.queues import Queue
from core.scopes import Scope
from models import MemberImport
from services.jobs.batches import Turn
from services.jobs.kinds import (
    COMPUTING_DEADLINE_SECONDS,
    JobKind,
    JobPermissions,
    register_kind,
)
from services.jobs.lease import JobCancelled, Lease, renew_lease
from services.subscriptions.imports import claims, endings, helper
from services.subscriptions.imports.chunks import applying
from services.subscriptions.imports.chunks.chunks import Chunk
from services.subscriptions.imports.chunks.stored_chunks import fetch_chunk
from services.subscriptions.imports.file_source import FileSource
from services.subscriptions.imports.request_source import RequestSource
from storage.resources import Resources

# How long one process runs an import's job before another process starts to read the file again.
MAX_STAY_SECONDS = 3600.0


class ChunkSource(Protocol):
    """The chunks of an import, and what happens to each chunk that was read."""

    @property
    def is_complete(self) -> bool: ...
    def read_chunks(self) -> Generator[Chunk | None, None, None]:
        """Yield each chunk, and ``None`` after other short steps."""

    def commit(self, chunk: Chunk, *, ends_turn: bool) -> None:
        """Store or apply a chunk. ``ends_turn`` requires that all chunks so far are committed."""


def run_import(resources: Resources, lease: Lease) -> Generator[None, None, None]:
    """Run the job that imports a file or the members in a request.

    The generator yields after each turn of the job.
    """
    with resources.unit_of_work() as uow:
        task = uow.session.get(MemberImport, lease.subject_id)
    if task is None:
        raise JobCancelled

    if not task.is_split:
        turn = Turn(resources, lease)
        source: ChunkSource = (
            RequestSource(resources, lease, task)
            if task.source == "members"
            else FileSource(resources, lease, task)
        )
        with closing(source.read_chunks()) as chunks:
            for chunk in chunks:
                lease.check_cancelled()
                ends_turn = lease.is_waiting or turn.is_over()
                if chunk is not None:
                    source.commit(chunk, ends_turn=ends_turn)
                # Don't pause after the last chunk. Otherwise, small files would stay open between
                # turns, and a hostile header takes tens of megabytes.
                if ends_turn and not source.is_complete:
                    yield
                    turn = Turn(resources, lease)

    with resources.unit_of_work() as uow:
        task = uow.session.get_one(MemberImport, task.id)
        missing = claims.find_missing_chunks(uow, task)
        if missing and task.chunks > 1:
            helper.hand_over_chunks(uow, lease, task)
            return

    # Apply a single chunk without a helper.
    for number in missing:
        lease.check_cancelled()
        prepared = fetch_chunk(resources, task, number)
        applying.commit_own_chunk(resources, lease, task.id, prepared)

    with resources.unit_of_work() as uow:
        # To prevent deadlocks, all transactions lock the import's job before the import.
        renew_lease(uow, lease)
        endings.end_import(uow, lease, uow.session.get_one(MemberImport, task.id))


def _register(name: str) -> JobKind:
    return register_kind(
        JobKind(
            name,
            Queue.BULK,
            Scope.SUBSCRIPTION_FULL,
            permissions=JobPermissions(Permission.FIGURES, Permission.EDIT),
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
