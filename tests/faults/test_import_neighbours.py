import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from core.ids import random_hash_id
from devstack.harness.polling import eventually
from devstack.harness.process_memory import measure_memory
from devstack.harness.running import Running
from devstack.harness.stack import Owner
from models import FINISHED
from tests.support.imports.importing import Importing, csv_of, new_addresses
from tests.support.imports.killed_imports import succeeded, worker
from tests.support.sizes import sized
from tests.support.stack.load import repeated

MEGABYTE = 1024 * 1024
# Little beside what a hundred thousand rows take when held at once.
MOST_MORE = 50 * MEGABYTE


def test_small_import_does_not_wait_for_another_owners_large_import(
    imports: Importing, import_owner: Owner
) -> None:
    other, many = imports.stack.create_owner(), sized(100_000, 1_000_000)
    large = csv_of([[each, "A name"] for each in new_addresses(many)])
    worker(imports)
    first = imports.begin(import_owner, imports.new_list(import_owner), large)
    eventually(lambda: imports.of_job(first).chunk_bytes, what="the large one's beginning")
    small = imports.begin(
        other,
        imports.new_list(other),
        csv_of([[f"{random_hash_id()}@example.com", ""] for _ in range(100)]),
    )
    assert succeeded(imports, small, within=60).added == 100
    assert imports.job(first).status not in FINISHED
    assert succeeded(imports, first, within=sized(90, 900)).added == many
    # It gave its turn away, again and again.
    assert imports.job(first).attempt > 1


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


def test_import_memory_stays_bounded_for_large_and_hostile_files(
    imports: Importing, import_owner: Owner
) -> None:
    running = worker(imports)
    _import_many(imports, import_owner, 10_000)
    with peak(running) as least:
        _import_many(imports, import_owner, 10_000)
    with peak(running) as most:
        _import_many(imports, import_owner, sized(100_000, 1_000_000))
        jobs = [
            imports.begin(import_owner, imports.new_list(import_owner), file, name=f"{name}.csv")
            for name, file in hostile_files().items()
        ]
        ends = {imports.ended(each, within=90).status for each in jobs}
    assert most[0] <= least[0] + MOST_MORE, (least, most)
    assert ends <= {"failed", "succeeded"}
    assert "failed" in ends
    codes = {(imports.job(each).error or {}).get("code") for each in jobs}
    assert not codes & {"job.internal_error", "job.worker_lost", "job.too_slow"}
    assert running.process.poll() is None
    _import_many(imports, import_owner, 100)


def _import_many(imports: Importing, import_owner: Owner, rows: int) -> None:
    file = csv_of([[each, "A name"] for each in new_addresses(rows)])
    job_id = imports.begin(import_owner, imports.new_list(import_owner), file)
    assert succeeded(imports, job_id, within=sized(60, 900)).added == rows


@contextmanager
def peak(running: Running) -> Iterator[list[int]]:
    """The most that the worker and its pool held meanwhile: proportional set size, in bytes."""
    found = [0]

    def watch() -> None:
        with suppress(OSError):
            held = sum(measure_memory(pid) for pid in (running.pid, *running.children()))
            found[0] = max(found[0], held)

    with repeated(watch, pause=0.05):
        yield found
