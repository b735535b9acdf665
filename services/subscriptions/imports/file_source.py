"""Stores the rows of an uploaded file as chunks, and records what was found in the file."""

from collections.abc import Generator
from contextlib import closing

from core.settings.notations import PlanQuota
from models import MemberImport
from services.access import quotas
from services.jobs.lease import Lease, renew_lease
from services.jobs.transitions import record_progress
from services.subscriptions.imports.chunks import chunks
from services.subscriptions.imports.chunks.chunks import Chunk
from services.subscriptions.imports.chunks.stored_chunks import StoredChunks
from services.subscriptions.imports.columns.samples import store_samples
from services.subscriptions.imports.file_rows import BlankColumns, FileFacts, FileRows
from services.subscriptions.imports.opened_file import open_source
from storage.resources import Resources


class FileSource:
    """The chunks of a file. If its end shows that rows were misread, the file is read again."""

    _rows: FileRows
    _stored: StoredChunks

    def __init__(self, resources: Resources, lease: Lease, task: MemberImport) -> None:
        self._resources = resources
        self._lease = lease
        self._task = task
        self.is_complete = False

    def read_chunks(self) -> Generator[Chunk | None, None, None]:
        """Yield the chunks. Then mark the duplicate rows in each stored chunk."""
        resources = self._resources
        while not self._task.is_split:
            self.is_complete = False
            source = yield from open_source(resources, self._lease, self._task)
            with (
                closing(source),
                closing(FileRows(resources, self._task, source, chunks.ROWS_PER_CHUNK)) as rows,
            ):
                self._rows = rows
                self._stored = StoredChunks(resources, self._task)
                while (chunk := rows.next_chunk()) is not None:
                    yield chunk
                while self._has_duplicates():
                    self._stored.mark_next_chunk(rows.seen)
                    self._end_step()
                    yield None
                self._end_reading()

    def commit(self, chunk: Chunk, *, ends_turn: bool) -> None:
        self._stored.store(chunk)
        self._end_step()

    def _has_duplicates(self) -> bool:
        return self._rows.seen.has_stricter_rows and self._stored.has_unmarked_chunks

    def _end_step(self) -> None:
        self.is_complete = self._rows.is_complete and not self._has_duplicates()
        if not self.is_complete:
            self._record_progress(None)

    def _end_reading(self) -> None:
        facts = self._rows.find_facts()
        self._record_progress(facts)
        if facts.error is not None:
            raise facts.error

    def _record_progress(self, facts: FileFacts | None) -> None:
        rows = self._rows
        stored = self._stored
        is_split = facts is not None and facts.are_applied and facts.error is None
        with self._resources.unit_of_work() as uow:
            # Lock the import's job, and raise ``LeaseLost`` if another worker has taken over the
            # job.
            if is_split:
                record_progress(uow, self._lease, done=0, total=rows.received)
            elif rows.received > self._task.received:
                record_progress(uow, self._lease, done=0)
            else:
                # Record no progress while the file is read a second time, because progress resets
                # the crash counter. A job that crashes repeatedly must fail.
                renew_lease(uow, self._lease)
            task = uow.session.get_one(MemberImport, self._task.id)
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
                store_samples(self._resources, task, rows.samples)
                task.description = rows.description
            if facts is not None and facts.error is None:
                _store_facts(task, facts, rows.blank_columns)
        self._task = task


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
