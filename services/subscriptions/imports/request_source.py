"""Adds the members in an API request to the list, chunk by chunk."""

from collections.abc import Generator
from contextlib import closing
from functools import partial

from sqlalchemy import select

from models import ImportChunk, MemberImport
from services.jobs.lease import Lease, renew_lease
from services.jobs.transitions import set_total
from services.subscriptions.imports import claims
from services.subscriptions.imports.chunks import applying, chunks
from services.subscriptions.imports.chunks.chunks import Chunk, prepare_chunk
from services.subscriptions.imports.chunks.chunks_at_once import ChunkCommitter, chunk_committer
from services.subscriptions.imports.request_rows import RequestRows
from storage.resources import Resources


class RequestSource:
    """The chunks of a request. While one chunk is read, up to two others are applied."""

    _commits: ChunkCommitter

    def __init__(self, resources: Resources, lease: Lease, task: MemberImport) -> None:
        self._resources = resources
        self._lease = lease
        self._import_id = task.id
        self._rows = RequestRows(resources, task, chunks.ROWS_PER_CHUNK)

    @property
    def is_complete(self) -> bool:
        return self._rows.is_complete

    def read_chunks(self) -> Generator[Chunk, None, None]:
        """Yield the chunks that weren't applied before the job moved to this process.

        The job reads the applied chunks again, which takes less than a second for a whole request.
        """
        # Optimization: two chunks of one request applied at the same time (decision 17).
        with closing(self._rows) as rows, chunk_committer() as self._commits:
            applied = self._begin()
            while (chunk := rows.next_chunk()) is not None:
                if chunk.number not in applied:
                    yield chunk
            self._end_turn()

    def commit(self, chunk: Chunk, *, ends_turn: bool) -> None:
        prepared = prepare_chunk(chunk.number, chunk.rows)
        job = self._resources, self._lease, self._import_id
        self._commits.wait_for_room()
        self._commits.start(partial(applying.commit_own_chunk, *job, prepared))
        if ends_turn:
            self._end_turn()

    def _end_turn(self) -> None:
        self._commits.end_all()
        with self._resources.unit_of_work() as uow:
            renew_lease(uow, self._lease)
            task = uow.session.get_one(MemberImport, self._import_id)
            # Record the number of chunks only at the end of a turn, because the chunks may be
            # committed in any order.
            task.chunks = max(task.chunks, self._rows.count)
            task.received = max(task.received, self._rows.received)
            task.is_split = self.is_complete

    def _begin(self) -> set[int]:
        """Record the size of the request, and return the numbers of the applied chunks."""
        numbers = select(ImportChunk.number).where(ImportChunk.import_id == self._import_id)
        with self._resources.unit_of_work() as uow:
            # Store the total number of members without recording progress, because progress resets
            # the number of crashes, and a job that crashes repeatedly must fail.
            set_total(uow, self._lease, total=self._rows.total)
            task = uow.session.get_one(MemberImport, self._import_id)
            task.description = {"format": "request", "header": self._rows.header}
            if self._rows.total > chunks.ROWS_PER_CHUNK:
                claims.enable_parallel_chunks(uow, task)
            return set(uow.session.scalars(numbers))
