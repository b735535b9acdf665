import gzip
import os
import random
import signal
import time
from contextlib import suppress

from core.ids import random_hash_id
from devstack.harness.embedded_services import Services
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Owner
from models import FINISHED
from services.accounts import accounts
from services.jobs.outbox import send_job
from services.subscriptions.imports.chunks import ROWS_PER_CHUNK
from services.subscriptions.imports.judging import MAX_BATCH_ROWS
from tests.faults.conftest import kill_all, pause, resume
from tests.support.imports.importing import Importing, counts_of, csv_of, new_addresses
from tests.support.imports.killed_imports import prepare, require_exact, succeeded, worker
from tests.support.sizes import sized
from tests.support.stack.held_rows import WAITS, await_waiter, held

ROWS = sized(24_000, 200_000)
KILLS = sized(4, 20)


def kill_child(running: Running) -> None:
    for pid in running.children()[:1]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def steps(importing: Importing, job_id: int) -> tuple[int, int]:
    task = importing.of_job(job_id)
    return task.chunk_bytes, task.applied


def await_step(
    importing: Importing, job_id: int, before: tuple[int, int], of: slice = slice(None)
) -> None:
    """Wait until the import has gone on in these of its steps, or ended."""

    def has_gone_on() -> bool:
        gone_on = steps(importing, job_id)[of] != before[of]
        return gone_on or importing.job(job_id).status in FINISHED

    eventually(has_gone_on, within=60, what="a step of the import")


def test_each_row_is_imported_once_by_three_processes_of_which_any_is_killed(
    importing: Importing, importer: Owner
) -> None:
    dice = random.Random(20_261_121)
    list_id = importing.new_list(importer)
    # So many that the processes that are left don't end it while one starts again.
    sent = prepare(importing, list_id, sized(3, 5) * ROWS)
    running = [worker(importing) for _ in range(3)]
    job_id, kills = importing.begin(importer, list_id, sent.file()), 0
    while kills < KILLS and importing.job(job_id).status not in FINISHED:
        before = steps(importing, job_id)
        # Now and then while the file is read; most of the time while its chunks are applied.
        await_step(importing, job_id, before, of=slice(1 if kills % 3 else 0, 2))
        time.sleep(dice.uniform(0, 0.2))
        place = dice.randrange(len(running))
        # The others go on, and may end it, while a whole process starts again: so that comes last.
        if kills % 4 == 3:
            kill_all(running[place])
            running[place] = worker(importing)
        else:
            kill_child(running[place])
        kills += 1
    task = succeeded(importing, job_id, within=sized(60, 600))
    assert kills >= sized(3, KILLS)
    require_exact(importing, list_id, task, sent)
    undone = importing.ended(importing.begin_undo(importer, task.id))
    assert undone.result == {"import_id": task.id, "undone": task.added, "kept": 0}
    # A helper that was killed once all chunks were applied ends when its lease is over.
    eventually(lambda: not _left_behind(importing, task.id), within=60, what="the helpers' end")


def _left_behind(importing: Importing, import_id: int) -> list[tuple[object, ...]]:
    return importing.stack.query(
        "SELECT 'chunk', number FROM waiting_chunks WHERE import_id = %s"
        " UNION ALL SELECT 'helper', h.id FROM jobs AS h JOIN jobs AS j ON j.id = h.subject_id"
        " WHERE h.kind = 'members.apply' AND h.finished_at IS NULL AND j.subject_id = %s",
        *(import_id, import_id),
    )


def test_import_goes_on_through_a_flush_of_redis_a_killed_api_and_a_restart_of_postgres(
    importing: Importing, services: Services, importer: Owner
) -> None:
    list_id = importing.new_list(importer)
    sent = prepare(importing, list_id, ROWS)
    api = importing.stack.start_api()
    running = [worker(importing), worker(importing)]
    with importing.stack.client(importer.key) as client:
        reply = client.post(f"/lists/{list_id}/imports", content=sent.file())
    assert reply.status_code == 202, reply.text
    job_id = int(reply.json()["data"]["id"])
    eventually(lambda: importing.of_job(job_id).chunk_bytes, what="the first chunk")
    importing.resources.redis.flushall()
    api.kill()
    eventually(lambda: importing.of_job(job_id).applied >= 1, what="the first rows")
    services.restart("postgres")
    task = succeeded(importing, job_id)
    require_exact(importing, list_id, task, sent)
    assert [each.process.poll() for each in running] == [None, None]


def test_a_chunk_that_kills_its_processes_is_tried_three_times_while_others_get_on(
    importing: Importing, importer: Owner
) -> None:
    people = new_addresses(4 * ROWS_PER_CHUNK)
    with importing.resources.unit_of_work() as uow:
        person = accounts.find_or_create_person(uow, people[0])
    list_id = importing.new_list(importer)
    job_id = importing.begin(importer, list_id, csv_of([[each, ""] for each in people]))
    with held(importing.stack, "users", person.id):
        running = worker(importing)
        for _ in range(3):
            # What the first chunk does is deadly.
            await_waiter(importing.stack, "FOR KEY SHARE OFFSET 0")
            kill_child(running)
            eventually(
                lambda: not importing.stack.query(WAITS, "%FOR KEY SHARE OFFSET 0%"),
                what="the end of its statement",
            )
        job = importing.ended(job_id)
    assert (job.status, job.error and job.error["code"]) == ("failed", "job.rows_failed")
    assert job.error is not None
    assert f"from line 2 to line {ROWS_PER_CHUNK + 1} " in job.error["message"]
    assert importing.active(list_id) == set(people[ROWS_PER_CHUNK:])
    assert _left_behind(importing, importing.of_job(job_id).id) == []


def test_file_that_is_damaged_at_its_end_adds_no_member_and_no_opt_out(
    importing: Importing, importer: Owner
) -> None:
    list_id = importing.new_list(importer)
    # Half of the rows are opt-outs, so that full chunks of both kinds precede the damaged end.
    statuses = ("subscribed", "unsubscribed")
    rows = [[each, statuses[place % 2]] for place, each in enumerate(new_addresses(ROWS))]
    archive = bytearray(gzip.compress(csv_of(rows, ("email", "status"))))
    checksum_position = len(archive) - 8
    archive[checksum_position] ^= 0xFF
    for _ in range(2):
        worker(importing)
    job_id = importing.begin(importer, list_id, bytes(archive), name="members.csv.gz")
    job = importing.ended(job_id)
    assert (job.status, job.error and job.error["code"]) == ("failed", "import.damaged")
    task = importing.of_job(job_id)
    assert task.received >= 2 * (ROWS_PER_CHUNK - MAX_BATCH_ROWS)
    assert importing.records(list_id) == []
    assert importing.opt_outs(list_id) == []
    assert _left_behind(importing, task.id) == []


def test_second_delivery_of_an_import_and_of_its_undo_does_nothing(
    importing: Importing, importer: Owner
) -> None:
    list_id = importing.new_list(importer)
    empty = importing.records(list_id)
    sent = csv_of([[f"{random_hash_id()}@example.com", "A"] for _ in range(3000)])
    for _ in range(2):
        worker(importing)
    job_id = importing.begin(importer, list_id, sent)
    deliver_often(importing, job_id)
    task = succeeded(importing, job_id)
    deliver_often(importing, job_id)
    undo = importing.begin_undo(importer, task.id)
    assert undo is not None
    deliver_often(importing, undo)
    assert importing.ended(undo).result == {"import_id": task.id, "undone": 3000, "kept": 0}
    assert counts_of(importing.of_job(job_id)) == counts_of(task)
    assert [importing.job(each).attempt for each in (job_id, undo)] == [1, 1]
    assert importing.records(list_id) == empty


def deliver_often(importing: Importing, job_id: int) -> None:
    job = importing.job(job_id)
    for _ in range(10):
        assert send_job(importing.resources.broker, job)


def test_worker_that_slept_through_its_lease_changes_nothing_when_it_wakes(
    importing: Importing, importer: Owner
) -> None:
    list_id = importing.new_list(importer)
    sent = prepare(importing, list_id, ROWS)
    job_id = importing.begin(importer, list_id, sent.file())
    sleeper = worker(importing)
    eventually(lambda: importing.of_job(job_id).applied >= 1, what="the first rows")
    pause(sleeper)
    worker(importing)
    succeeded(importing, job_id)
    resume(sleeper)
    # It takes work again, so it has dealt with what it held.
    eventually(lambda: "job.lease_lost" in sleeper.log.read_text() or _idle(importing, importer))
    require_exact(importing, list_id, importing.of_job(job_id), sent)


def _idle(importing: Importing, importer: Owner) -> bool:
    jobs = [
        importing.begin(importer, importing.new_list(importer), csv_of([["a@example.com", ""]]))
        for _ in range(4)
    ]
    return all(importing.ended(each).status == "succeeded" for each in jobs)
