"""Tests that imports add each row exactly once although workers and services are killed."""

import gzip
import os
import random
import signal
import time
from contextlib import suppress
from functools import partial

import psutil

from core.ids import random_hash_id
from devstack.harness.embedded_services import Services
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Owner
from models import FINISHED
from services.accounts import accounts
from services.jobs.outbox import send_job
from services.subscriptions.imports.chunks.chunks import ROWS_PER_CHUNK
from services.subscriptions.imports.chunks.judging import MAX_BATCH_ROWS
from tests.support.imports.importing import ImportRunner, counts_of, csv_of, new_addresses
from tests.support.imports.killed_imports import (
    await_success,
    prepare_import,
    require_exact,
    start_import_worker,
)
from tests.support.imports.workbooks import workbook
from tests.support.sizes import sized
from tests.support.stack.held_rows import LOCK_WAIT_QUERY, await_waiter, locked_row
from tests.support.stack.signals import kill_with_children, pause_process, resume_process

ROWS = sized(24_000, 200_000)
KILLS = sized(4, 20)


def kill_child(running: Running) -> None:
    for pid in running.children()[:1]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def import_progress(imports: ImportRunner, job_id: int) -> tuple[int, int]:
    """Return how many bytes of the file have been read, and how many chunks were imported."""
    task = imports.of_job(job_id)
    return task.chunk_bytes, task.applied


def await_progress(
    imports: ImportRunner, job_id: int, before: tuple[int, int], compared: slice = slice(None)
) -> None:
    """Wait until the import progresses or ends.

    ``compared``: selects the numbers returned by ``import_progress`` that count as progress.
    """

    def has_progressed() -> bool:
        progressed = import_progress(imports, job_id)[compared] != before[compared]
        return progressed or imports.job(job_id).status in FINISHED

    eventually(has_progressed, within=60, what="progress of the import")


def test_each_row_is_imported_exactly_once_while_workers_are_killed(
    imports: ImportRunner, import_owner: Owner
) -> None:
    dice = random.Random(20_261_121)
    list_id = imports.new_list(import_owner)
    # The file is so large that the other workers can't finish it while one worker restarts.
    prepared_import = prepare_import(imports, list_id, sized(3, 5) * ROWS)
    running = [start_import_worker(imports) for _ in range(3)]
    job_id = imports.begin(import_owner, list_id, prepared_import.file())
    kills = 0
    while kills < KILLS and imports.job(job_id).status not in FINISHED:
        before = import_progress(imports, job_id)
        # Before two out of three kills, wait until another chunk has been imported since the last
        # kill. Before every third kill, wait only until the import has read more of the file, or
        # another chunk has been imported.
        await_progress(imports, job_id, before, compared=slice(1 if kills % 3 else 0, 2))
        time.sleep(dice.uniform(0, 0.2))
        worker_number = dice.randrange(len(running))
        # Kill a whole worker only every fourth time, because a whole worker restarts so slowly that
        # the other workers could finish the import. The other times, kill one of a worker's child
        # processes.
        if kills % 4 == 3:
            kill_with_children(running[worker_number])
            running[worker_number] = start_import_worker(imports)
        else:
            kill_child(running[worker_number])
        kills += 1
    task = await_success(imports, job_id, within=sized(60, 600))
    assert kills >= sized(3, KILLS)
    require_exact(imports, list_id, task, prepared_import)
    undone = imports.ended(imports.begin_undo(import_owner, task.id))
    assert undone.result == {"import_id": task.id, "undone": task.added, "kept": 0}
    # A helper job whose worker was killed after the last chunk ends when its lease expires.
    eventually(
        lambda: not _find_unfinished_parts(imports, task.id),
        within=60,
        what="the end of the helpers",
    )


def _find_unfinished_parts(imports: ImportRunner, import_id: int) -> list[tuple[object, ...]]:
    """Return the chunks that are still to be imported, and the unfinished helper jobs."""
    return imports.stack.query(
        "SELECT 'chunk', number FROM waiting_chunks WHERE import_id = %s"
        " UNION ALL SELECT 'helper', h.id FROM jobs AS h JOIN jobs AS j ON j.id = h.subject_id"
        " WHERE h.kind = 'members.apply' AND h.finished_at IS NULL AND j.subject_id = %s",
        *(import_id, import_id),
    )


def test_import_survives_redis_flush_killed_api_and_postgres_restart(
    imports: ImportRunner, services: Services, import_owner: Owner
) -> None:
    list_id = imports.new_list(import_owner)
    prepared_import = prepare_import(imports, list_id, ROWS)
    api = imports.stack.start_api()
    running = [start_import_worker(imports), start_import_worker(imports)]
    with imports.stack.client(import_owner.key) as client:
        reply = client.post(f"/lists/{list_id}/imports", content=prepared_import.file())
    assert reply.status_code == 202, reply.text
    job_id = int(reply.json()["data"]["id"])
    eventually(lambda: imports.of_job(job_id).chunk_bytes, what="the first chunk")
    imports.resources.redis.flushall()
    api.kill()
    eventually(lambda: imports.of_job(job_id).applied >= 1, what="the first rows")
    services.restart("postgres")
    task = await_success(imports, job_id)
    require_exact(imports, list_id, task, prepared_import)
    assert [each.process.poll() for each in running] == [None, None]


def test_chunk_that_crashes_workers_is_tried_three_times_and_other_chunks_are_imported(
    imports: ImportRunner, import_owner: Owner
) -> None:
    people = new_addresses(4 * ROWS_PER_CHUNK)
    with imports.resources.unit_of_work() as uow:
        person = accounts.find_or_create_person(uow, people[0])
    list_id = imports.new_list(import_owner)
    job_id = imports.begin(import_owner, list_id, csv_of([[each, ""] for each in people]))
    with locked_row(imports.stack, "users", person.id):
        running = start_import_worker(imports)
        for _ in range(3):
            # Kill the process while it executes the statement that inserts the first chunk.
            await_waiter(imports.stack, "FOR KEY SHARE OFFSET 0")
            kill_child(running)
            eventually(
                lambda: not imports.stack.query(LOCK_WAIT_QUERY, "%FOR KEY SHARE OFFSET 0%"),
                what="the end of its statement",
            )
        job = imports.ended(job_id)
    assert (job.status, job.error and job.error["code"]) == ("failed", "job.rows_failed")
    assert job.error is not None
    assert f"Lines 2 to {ROWS_PER_CHUNK + 1} " in job.error["message"]
    assert imports.active(list_id) == set(people[ROWS_PER_CHUNK:])
    assert _find_unfinished_parts(imports, imports.of_job(job_id).id) == []


def test_import_of_file_damaged_at_its_end_adds_no_member_and_no_opt_out(
    imports: ImportRunner, import_owner: Owner
) -> None:
    list_id = imports.new_list(import_owner)
    # Mix members and opt-outs, so that full chunks of both precede the damaged end of the file.
    statuses = ("subscribed", "unsubscribed")
    addresses = new_addresses(ROWS)
    rows = [[address, statuses[number % 2]] for number, address in enumerate(addresses)]
    archive = bytearray(gzip.compress(csv_of(rows, ("email", "status"))))
    checksum_position = len(archive) - 8
    archive[checksum_position] ^= 0xFF
    for _ in range(2):
        start_import_worker(imports)
    job_id = imports.begin(import_owner, list_id, bytes(archive), name="members.csv.gz")
    job = imports.ended(job_id)
    assert (job.status, job.error and job.error["code"]) == ("failed", "import.damaged")
    task = imports.of_job(job_id)
    assert task.received >= 2 * (ROWS_PER_CHUNK - MAX_BATCH_ROWS)
    assert imports.records(list_id) == []
    assert imports.opt_outs(list_id) == []
    assert _find_unfinished_parts(imports, task.id) == []


def test_duplicate_delivery_of_import_or_undo_has_no_effect(
    imports: ImportRunner, import_owner: Owner
) -> None:
    list_id = imports.new_list(import_owner)
    records_before = imports.records(list_id)
    file = csv_of([[f"{random_hash_id()}@example.com", "A"] for _ in range(3000)])
    for _ in range(2):
        start_import_worker(imports)
    job_id = imports.begin(import_owner, list_id, file)
    deliver_often(imports, job_id)
    task = await_success(imports, job_id)
    deliver_often(imports, job_id)
    undo = imports.begin_undo(import_owner, task.id)
    assert undo is not None
    deliver_often(imports, undo)
    assert imports.ended(undo).result == {"import_id": task.id, "undone": 3000, "kept": 0}
    assert counts_of(imports.of_job(job_id)) == counts_of(task)
    assert [imports.job(each).attempt for each in (job_id, undo)] == [1, 1]
    assert imports.records(list_id) == records_before


def deliver_often(imports: ImportRunner, job_id: int) -> None:
    job = imports.job(job_id)
    for _ in range(10):
        assert send_job(imports.resources.broker, job)


def test_worker_resuming_after_its_lease_expired_changes_nothing_in_an_import(
    imports: ImportRunner, import_owner: Owner
) -> None:
    list_id = imports.new_list(import_owner)
    prepared_import = prepare_import(imports, list_id, ROWS)
    job_id = imports.begin(import_owner, list_id, prepared_import.file())
    paused_worker = start_import_worker(imports)
    eventually(lambda: imports.of_job(job_id).applied >= 1, what="the first rows")
    pause_process(paused_worker)
    start_import_worker(imports)
    await_success(imports, job_id)
    resume_process(paused_worker)
    # Wait until the resumed worker no longer works on its old chunk: either the worker has logged
    # `job.lease_lost`, or four new imports have succeeded.
    eventually(
        lambda: (
            "job.lease_lost" in paused_worker.log.read_text()
            or _import_small_files(imports, import_owner)
        )
    )
    require_exact(imports, list_id, imports.of_job(job_id), prepared_import)


def _import_small_files(imports: ImportRunner, import_owner: Owner) -> bool:
    jobs = [
        imports.begin(import_owner, imports.new_list(import_owner), csv_of([["a@example.com", ""]]))
        for _ in range(4)
    ]
    return all(imports.ended(each).status == "succeeded" for each in jobs)


def test_workbook_is_imported_exactly_once_while_its_child_and_its_worker_are_killed(
    imports: ImportRunner, import_owner: Owner
) -> None:
    list_id = imports.new_list(import_owner)
    prepared_import = prepare_import(imports, list_id, ROWS)
    file = workbook({"Members": [["email", "name", "status"], *prepared_import.rows]})
    running = start_import_worker(imports)
    job_id = imports.begin(import_owner, list_id, file, name="members.xlsx")
    for kill_worker in (False, True, False):
        child = eventually(partial(_find_reader, running), within=60, what="the workbook's child")
        if kill_worker:
            kill_with_children(running)
            running = start_import_worker(imports)
        else:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        child.wait(10)
    task = await_success(imports, job_id, within=sized(90, 600))
    require_exact(imports, list_id, task, prepared_import)


def _find_reader(running: Running) -> psutil.Process | None:
    """The child process that reads a workbook for this worker."""
    for child in psutil.Process(running.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "services.subscriptions.imports.formats.workbooks.child" in child.cmdline():
                return child
    return None
