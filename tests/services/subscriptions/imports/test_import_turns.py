"""Import jobs that a worker runs in several turns.

The tests count open files, take leases away, and change stored files between two turns.
"""

from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import func

from core.queues import Queue
from devstack.harness.stack import Owner
from services.jobs.lease import Lease, LeaseLost
from services.jobs.lost_jobs import DatabaseWatch, requeue_lost_jobs
from services.jobs.transitions import lock_shared_lease
from services.subscriptions import lists
from services.subscriptions.imports import helper, import_job
from services.subscriptions.imports.chunks import applying, chunks
from services.subscriptions.imports.chunks.applying import AppliedChunk
from services.subscriptions.imports.claims import ChunkClaims
from services.subscriptions.imports.file_rows import FileRows
from storage.encryption import DecryptionFailed
from tests.support.imports.importing import ImportRunner, csv_of, new_addresses
from tests.support.imports.turns import ShortTurn
from tests.support.people.erasure import erase
from tests.support.probe.job_states import update_job
from workers import job_runner
from workers.context import WorkerContext
from workers.in_flight_work import InFlightWork
from workers.job_runner import JobAttempt, run_job
from workers.serving import plan_serving

pytestmark = pytest.mark.usefixtures("_shorten_turns")

FILE_COUNT = 3


def build_csv(rows: int) -> bytes:
    return csv_of([[each, ""] for each in new_addresses(rows)])


class OpenFiles:
    """Counts the files that are open, and the most files that were open at the same time."""

    def __init__(self) -> None:
        self.count = 0
        self.max_count = 0

    def change(self, difference: int) -> None:
        self.count += difference
        self.max_count = max(self.max_count, self.count)


@pytest.fixture
def open_files(monkeypatch: pytest.MonkeyPatch) -> OpenFiles:
    files = OpenFiles()
    open_file = FileRows.__init__
    close_file = FileRows.close

    def open_and_count(rows: FileRows, *arguments: Any) -> None:
        open_file(rows, *arguments)
        files.change(1)

    def close_and_count(rows: FileRows) -> None:
        close_file(rows)
        files.change(-1)

    monkeypatch.setattr(FileRows, "__init__", open_and_count)
    monkeypatch.setattr(FileRows, "close", close_and_count)
    return files


def worker_context(importing: ImportRunner) -> WorkerContext:
    """The parts of a worker's context that running a job needs."""
    return cast(
        "WorkerContext",
        SimpleNamespace(
            resources=importing.resources,
            in_flight_work=InFlightWork(),
            serves=plan_serving([Queue.BULK]),
        ),
    )


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "cancelled"])
def test_worker_closes_the_file_of_an_import_that_is_cancelled_or_taken_over(
    importing: ImportRunner, importer: Owner, list_id: int, open_files: OpenFiles, *, is_lost: bool
) -> None:
    job_id = importing.begin(importer, list_id, build_csv(30))
    attempt = JobAttempt(
        worker_context(importing), importing.lease(job_id), before_kill=lambda: None
    )
    with closing(attempt):
        assert attempt.take_turn()
        assert open_files.count == 1
        if is_lost:
            importing.stack.query(
                "UPDATE jobs SET attempt = attempt + 1 WHERE id = %s RETURNING id", job_id
            )
        else:
            attempt.lease.cancelled.set()
        assert not attempt.take_turn()
    assert open_files.count == 0


def test_import_with_a_single_chunk_keeps_no_file_open_between_turns(
    importing: ImportRunner,
    importer: Owner,
    list_id: int,
    open_files: OpenFiles,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another job waits, and opening the file took longer than a turn."""
    monkeypatch.setattr(ShortTurn, "is_over", lambda _: True)
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 10_000)
    job_id = importing.begin(importer, list_id, build_csv(1))
    attempt = JobAttempt(
        worker_context(importing), importing.lease(job_id), before_kill=lambda: None
    )
    with closing(attempt):
        assert not attempt.take_turn()
        assert open_files.count == 0
    assert importing.job(job_id).status == "succeeded"


def test_stopping_worker_closes_the_import_file_and_hands_the_job_back(
    importing: ImportRunner, importer: Owner, list_id: int, open_files: OpenFiles
) -> None:
    job_id = importing.begin(importer, list_id, build_csv(30))
    with closing(
        JobAttempt(worker_context(importing), importing.lease(job_id), before_kill=lambda: None)
    ) as attempt:
        assert attempt.take_turn()
        attempt.hand_back()
    assert open_files.count == 0
    assert importing.work(job_id).status == "succeeded"


def test_worker_keeps_few_import_files_open_and_still_reads_all_of_them_completely(
    importing: ImportRunner, importer: Owner, open_files: OpenFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runner, "MAX_STAYING_JOBS", 1)
    jobs = [
        importing.begin(importer, importing.new_list(importer), build_csv(30))
        for _ in range(FILE_COUNT)
    ]
    for job_id in jobs:
        run_job(worker_context(importing), job_id=job_id)
    for job_id in jobs:
        importing.help(job_id)
    # At most two files were open: one of the running job, one of the job that stays in the process.
    assert open_files.max_count == 2
    assert open_files.count == 0
    tasks = [importing.of_job(job_id) for job_id in jobs]
    assert [(task.received, task.added, task.duplicate) for task in tasks] == [
        (30, 30, 0)
    ] * FILE_COUNT
    assert [importing.job(job_id).status for job_id in jobs] == ["succeeded"] * FILE_COUNT


def test_small_import_of_another_owner_finishes_before_a_large_file_is_read(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    other_owner = importing.stack.create_owner()
    large_id = importing.begin(importer, list_id, build_csv(30))
    small_id = importing.begin(other_owner, importing.new_list(other_owner), build_csv(1))
    run_job(worker_context(importing), job_id=large_id)
    small_job = importing.job(small_id)
    assert small_job.status == "succeeded"
    assert small_job.finished_at is not None
    # The import of a large file enqueues its first helper job after it has read the whole file.
    [helper_id] = importing.helpers(large_id)
    assert small_job.finished_at < importing.job(helper_id).created_at


def test_attempt_of_a_helper_that_lost_its_lease_but_is_alive_does_not_count_for_its_chunk(
    importing: ImportRunner, importer: Owner, list_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = importing.begin(importer, list_id, build_csv(4))
    run_job(worker_context(importing), job_id=job_id)
    [helper_id] = importing.helpers(job_id)
    later_leases: list[Lease] = []

    def apply_too_late(*_: object) -> AppliedChunk:
        if not later_leases:
            update_job(importing.resources, helper_id, lease_expires_at=func.now())
            requeue_lost_jobs(importing.resources, DatabaseWatch())
            later_leases.append(importing.lease(helper_id))
            claim_first_chunk(importing, later_leases[0])
        raise LeaseLost(helper_id)

    with monkeypatch.context() as patch:
        patch.setattr(helper, "MAX_CHUNKS_AT_ONCE", 1)
        patch.setattr(applying, "apply_chunk", apply_too_late)
        with pytest.raises(LeaseLost):
            helper.run_helper(importing.resources, importing.lease(helper_id))
    [later_lease] = later_leases
    # The late helper takes back its own try, and leaves the later claim alone.
    claims = importing.stack.query(
        "SELECT number, job_id, attempt, tries FROM waiting_chunks WHERE import_id = %s"
        " ORDER BY number",
        importing.of_job(job_id).id,
    )
    assert claims[0] == (0, helper_id, later_lease.attempt, 1)
    assert {claim[1:] for claim in claims[1:]} <= {(None, None, 0)}
    update_job(importing.resources, helper_id, lease_expires_at=func.now())
    requeue_lost_jobs(importing.resources, DatabaseWatch())
    importing.help(job_id)
    assert importing.of_job(job_id).added == 4


def claim_first_chunk(importing: ImportRunner, lease: Lease) -> None:
    """Claim the first chunk of an import, as a helper does."""
    import_job_id = lease.subject_id or 0
    with importing.resources.unit_of_work() as uow:
        import_lease = lock_shared_lease(uow, import_job_id)
    assert import_lease is not None
    task = importing.of_job(import_job_id)
    assert ChunkClaims(importing.resources, lease, import_lease, task).claim_next() == 0


def test_erasure_of_an_owner_cancels_their_imports_and_deletes_the_files(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    job_id = importing.begin(importer, list_id, build_csv(41))
    lease = importing.lease(job_id)
    next(import_job.run_import(importing.resources, lease))
    task = importing.of_job(job_id)
    prefix = f"{task.object_prefix}/"
    assert importing.stack.stored(prefix)
    with importing.resources.unit_of_work() as uow:
        lists.archive_list(uow, lists.get_list(uow, list_id))
    erase(importing.resources, importer.email)
    import_rows = importing.stack.query(
        "SELECT status, filename, wrapped_key, finished_at IS NOT NULL,"
        " files_removed_at IS NOT NULL FROM imports WHERE id = %s",
        task.id,
    )
    assert import_rows == [("cancelled", None, None, True, True)]
    assert not importing.stack.stored(prefix)


def test_import_of_a_file_tampered_with_in_storage_fails_and_adds_nobody(
    importing: ImportRunner, importer: Owner, list_id: int
) -> None:
    job_id = importing.begin(importer, list_id, build_csv(41))
    prefix = importing.of_job(job_id).object_prefix
    [name] = importing.stack.stored(f"{prefix}/")
    encrypted = bytearray(importing.resources.objects.get(name))
    encrypted[-1] ^= 1
    importing.resources.objects.put(name, bytes(encrypted), "application/octet-stream")
    with pytest.raises(DecryptionFailed):
        importing.work(job_id)
    assert importing.of_job(job_id).added == 0
