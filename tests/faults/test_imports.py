"""Imports while everything around them is killed, emptied and restarted: each row exactly once."""

import os
import random
import re
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from core.ids import random_hash_id
from devstack.stack import Services
from models import FINISHED, MemberImport
from services.jobs.outbox import send
from tests.faults.conftest import pause, resume
from tests.faults.size import FULL, sized
from tests.importing import Importing, counts_of, csv_of
from tests.stack import Owner, Running, Stack, eventually

ROWS = sized(30_000, 200_000)
KILLS = sized(5, 20)
MEGABYTE = 1024 * 1024
# More than one chunk, and little of what a hundred thousand rows take when held at once.
MOST_MORE = 50 * MEGABYTE
pytestmark = pytest.mark.timeout(3600 if FULL else 120)


@pytest.fixture(scope="module")
def importing(make_stack: Callable[[str], Stack]) -> Importing:
    return Importing(make_stack("bulk-faults"))


@pytest.fixture
def owner(importing: Importing) -> Owner:
    return importing.stack.new_owner()


@pytest.fixture(autouse=True)
def _workers_end(importing: Importing) -> Iterator[None]:
    yield
    for running in tuple(importing.stack.processes):
        resume(running)
        running.stop(0 if running.process.poll() is not None else 20)
        importing.stack.processes.remove(running)


def worker(importing: Importing, concurrency: int = 1) -> Running:
    return importing.stack.start_worker("bulk", concurrency=concurrency)


# -- a file, and what is to become of it ----------------------------------------------------------


@dataclass
class Sent:
    """A file with some of everything, made so that each row's end is known."""

    rows: list[list[str]] = field(default_factory=list)
    codes: dict[int, str] = field(default_factory=dict)
    members: set[str] = field(default_factory=set)

    def file(self) -> bytes:
        return csv_of(self.rows)

    def counts(self) -> dict[str, int]:
        found = list(self.codes.values())
        return {
            "received": len(self.rows),
            "added": len(self.rows) - len(found),
            "already": found.count("member.already"),
            "opted_out": found.count("member.opted_out"),
            "invalid": found.count("email.invalid"),
            "duplicate": found.count("row.duplicate"),
            "updated": 0,
        }


def prepare(importing: Importing, list_id: int, rows: int) -> Sent:
    """A file of so many rows, and a list which some of its people are on, or left."""
    tag, sent = random_hash_id(8), Sent()
    known = [f"known{n}.{tag}@example.com" for n in range(200)]
    left = [f"left{n}.{tag}@example.com" for n in range(200)]
    _enroll(importing, list_id, known, left)
    sent.members = set(known)
    for n in range(rows):
        address, code = f"m{n}.{tag}@example.com", None
        match n % 100:
            case 7:
                address, code = f"nobody{n}", "email.invalid"
            case 13:
                address, code = f"M{n - 1}.{tag}@EXAMPLE.com", "row.duplicate"
            case 21 if n // 100 < len(known):
                address, code = known[n // 100], "member.already"
            case 42 if n // 100 < len(left):
                address, code = left[n // 100], "member.opted_out"
        sent.rows.append([address, f"Name {n}"])
        if code is None:
            sent.members.add(address)
        else:
            sent.codes[n + 2] = code
    return sent


def _enroll(importing: Importing, list_id: int, known: list[str], left: list[str]) -> None:
    owner_of = "SELECT user_id FROM lists WHERE id = %s"
    [(user_id,)] = importing.stack.query(owner_of, list_id)
    owner = Owner(int(str(user_id)), "", "")
    importing.bring(owner, list_id, csv_of([[each, ""] for each in known]))
    gone = csv_of([[each, "unsubscribed"] for each in left], ("email", "status"))
    importing.bring(owner, list_id, gone)


def require_exact(importing: Importing, list_id: int, task: MemberImport, sent: Sent) -> None:
    assert counts_of(task) == sent.counts()
    rows = importing.stack.query(
        "SELECT email, status, user_id FROM subscriptions WHERE list_id = %s", list_id
    )
    addresses = [str(email) for email, _, _ in rows]
    assert len(addresses) == len(set(addresses)) == len({user_id for _, _, user_id in rows})
    assert importing.active(list_id) == set(addresses) == sent.members
    assert importing.count(list_id) == len(sent.members)
    shown = importing.not_added(task.id)
    assert [(int(line), code) for *_, line, code, _ in shown] == sorted(sent.codes.items())
    assert [cells[:2] for cells in shown] == [sent.rows[line - 2] for line in sorted(sent.codes)]
    chunks = importing.stack.query(
        "SELECT count(*), count(DISTINCT number), max(number) + 1 FROM import_chunks"
        " WHERE import_id = %s",
        task.id,
    )
    assert chunks == [(task.chunks, task.chunks, task.chunks)]
    # What is not needed any more is gone with it.
    assert not list(importing.resources.objects.stored(f"{task.object_prefix}/"))


def succeeded(importing: Importing, job_id: int, *, within: float = 90.0) -> MemberImport:
    job = importing.ended(job_id, within=within)
    assert job.status == "succeeded", (job.status, job.error)
    assert job.result is not None
    task = importing.of_job(job_id)
    assert {name: job.result[name] for name in counts_of(task)} == counts_of(task)
    return task


# -- killed, emptied, restarted -------------------------------------------------------------------


def kill_all(running: Running) -> None:
    """kill -9 of the worker and its pool."""
    children = running.children() if running.process.poll() is None else []
    running.kill()
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_child(running: Running) -> None:
    for pid in running.children()[:1]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def steps(importing: Importing, job_id: int) -> tuple[int, int]:
    task = importing.of_job(job_id)
    return task.chunks, task.applied


def test_each_row_is_imported_once_however_often_the_worker_is_killed(
    importing: Importing, owner: Owner
) -> None:
    dice = random.Random(20_261_120)
    list_id = importing.new_list(owner)
    sent = prepare(importing, list_id, ROWS)
    job_id = importing.begin(owner, list_id, sent.file())
    running, kills = worker(importing), 0
    while kills < KILLS and importing.job(job_id).status not in FINISHED:
        before = steps(importing, job_id)
        # Now and then before it gets anywhere; most of the time in the middle of the next step.
        if kills % 3:
            eventually(
                lambda before=before: (
                    steps(importing, job_id) != before  # type: ignore[misc]
                    or importing.job(job_id).status in FINISHED
                ),
                within=30,
                what="a step of the import",
            )
        time.sleep(dice.uniform(0, 0.2))
        if dice.random() < 0.5:
            kill_all(running)
            running = worker(importing)
        else:
            kill_child(running)
        kills += 1
    task = succeeded(importing, job_id, within=sized(60, 600))
    assert kills >= min(KILLS, 3)
    require_exact(importing, list_id, task, sent)


def test_import_goes_on_through_a_flush_of_redis_a_killed_api_and_a_restart_of_postgres(
    importing: Importing, services: Services, owner: Owner
) -> None:
    list_id = importing.new_list(owner)
    sent = prepare(importing, list_id, ROWS)
    api = importing.stack.start_api()
    running = [worker(importing), worker(importing)]
    with importing.stack.client(owner.key) as client:
        reply = client.post(f"/lists/{list_id}/imports", content=sent.file())
    assert reply.status_code == 202, reply.text
    job_id = int(reply.json()["data"]["id"])
    eventually(lambda: importing.of_job(job_id).chunks >= 1, what="the first chunk")
    importing.resources.redis.flushall()
    api.kill()
    eventually(lambda: importing.of_job(job_id).applied >= 1, what="the first rows")
    services.restart("postgres")
    task = succeeded(importing, job_id)
    require_exact(importing, list_id, task, sent)
    assert [each.process.poll() for each in running] == [None, None]


def test_second_delivery_of_an_import_and_of_its_undo_does_nothing(
    importing: Importing, owner: Owner
) -> None:
    list_id = importing.new_list(owner)
    empty = importing.records(list_id)
    sent = csv_of([[f"{random_hash_id()}@example.com", "A"] for _ in range(3000)])
    for _ in range(2):
        worker(importing)
    job_id = importing.begin(owner, list_id, sent)
    deliver_often(importing, job_id)
    task = succeeded(importing, job_id)
    deliver_often(importing, job_id)
    undo = importing.begin_undo(owner, task.id)
    deliver_often(importing, undo)
    assert importing.ended(undo).result == {"import_id": task.id, "undone": 3000, "kept": 0}
    assert counts_of(importing.of_job(job_id)) == counts_of(task)
    assert [importing.job(each).attempt for each in (job_id, undo)] == [1, 1]
    assert importing.records(list_id) == empty


def deliver_often(importing: Importing, job_id: int) -> None:
    job = importing.job(job_id)
    for _ in range(10):
        assert send(importing.resources.broker, job)


def test_worker_that_slept_through_its_lease_changes_nothing_when_it_wakes(
    importing: Importing, owner: Owner
) -> None:
    list_id = importing.new_list(owner)
    sent = prepare(importing, list_id, ROWS)
    job_id = importing.begin(owner, list_id, sent.file())
    sleeper = worker(importing)
    eventually(lambda: importing.of_job(job_id).applied >= 1, what="the first rows")
    pause(sleeper)
    worker(importing)
    succeeded(importing, job_id)
    resume(sleeper)
    # It takes work again, so it has dealt with what it held.
    eventually(lambda: "job.lease_lost" in sleeper.log.read_text() or _idle(importing, owner))
    require_exact(importing, list_id, importing.of_job(job_id), sent)


def _idle(importing: Importing, owner: Owner) -> bool:
    jobs = [
        importing.begin(owner, importing.new_list(owner), csv_of([["a@example.com", ""]]))
        for _ in range(4)
    ]
    return all(importing.ended(each).status == "succeeded" for each in jobs)


# -- neighbours -----------------------------------------------------------------------------------


def test_a_hundred_rows_do_not_wait_for_another_owners_hundred_thousand(
    importing: Importing, owner: Owner
) -> None:
    other, many = importing.stack.new_owner(), sized(100_000, 1_000_000)
    tag = random_hash_id()
    large = csv_of([[f"{n}.{tag}@example.com", f"Name {n}"] for n in range(many)])
    worker(importing)
    first = importing.begin(owner, importing.new_list(owner), large)
    eventually(lambda: importing.of_job(first).chunks >= 1, what="the large one's beginning")
    small = importing.begin(
        other,
        importing.new_list(other),
        csv_of([[f"{random_hash_id()}@example.com", ""] for _ in range(100)]),
    )
    assert succeeded(importing, small, within=60).added == 100
    assert importing.job(first).status not in FINISHED
    assert succeeded(importing, first, within=sized(90, 900)).added == many
    # It gave its turn away, again and again.
    assert importing.job(first).attempt > 1


def hostile_files() -> dict[str, bytes]:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"email\n" + b"a" * MEGABYTE
    packed = packer.compress(b"email\n") + b"".join(
        packer.compress(b" " * MEGABYTE) for _ in range(300)
    )
    wide = zlib.compressobj(6, wbits=31)
    noise = random.Random(1).randbytes(300).hex()
    long_rows = b"".join(
        wide.compress(b"m%d@example.com,%s\n" % (n, (noise * 400)[n : n + 200_000].encode()))
        for n in range(2500)
    )
    return {
        "a line of 10 MB": b"email\n" + b"x" * (10 * MEGABYTE),
        "a bomb": packed + packer.flush(),
        "a million columns": b",".join([b"c"] * 1_000_000) + b"\na@example.com\n",
        "long rows": wide.compress(b"") + long_rows + wide.flush(),
        "NUL and worse": b"email,na\0me\na@example.com,\0\xff\xfe\n" + bomb[:0],
    }


def test_memory_does_not_grow_with_the_file_and_a_hostile_file_harms_itself_alone(
    importing: Importing, owner: Owner
) -> None:
    running = worker(importing)
    _import_many(importing, owner, 10_000)
    with peak(running) as least:
        _import_many(importing, owner, 10_000)
    with peak(running) as most:
        _import_many(importing, owner, sized(100_000, 1_000_000))
        jobs = [
            importing.begin(owner, importing.new_list(owner), file, name=f"{name}.csv")
            for name, file in hostile_files().items()
        ]
        ends = {importing.ended(each, within=90).status for each in jobs}
    assert most[0] <= least[0] + MOST_MORE, (least, most)
    assert ends <= {"failed", "succeeded"}
    assert "failed" in ends
    codes = {(importing.job(each).error or {}).get("code") for each in jobs}
    assert not codes & {"job.internal_error", "job.worker_lost", "job.too_slow"}
    assert running.process.poll() is None
    _import_many(importing, owner, 100)


def _import_many(importing: Importing, owner: Owner, rows: int) -> None:
    tag = random_hash_id()
    file = csv_of([[f"{n}.{tag}@example.com", f"Name {n}"] for n in range(rows)])
    job_id = importing.begin(owner, importing.new_list(owner), file)
    assert succeeded(importing, job_id, within=sized(60, 900)).added == rows


@contextmanager
def peak(running: Running) -> Iterator[list[int]]:
    """The most that the worker and its pool held meanwhile: proportional set size, in bytes."""
    found, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.05):
            with suppress(OSError):
                held = sum(_share(pid) for pid in (running.pid, *running.children()))
                found[0] = max(found[0], held)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        stop.set()
        watcher.join()


def _share(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
