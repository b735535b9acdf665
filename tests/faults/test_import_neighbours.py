"""Tests that large and hostile imports neither delay other imports nor exhaust the memory."""

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
from tests.support.imports.importing import ImportRunner, csv_of, new_addresses
from tests.support.imports.killed_imports import await_success, start_import_worker
from tests.support.sizes import sized
from tests.support.stack.load import repeating

MEGABYTE = 1024 * 1024
# How much more memory large imports may need than small imports. An import that kept a hundred
# thousand rows in memory would exceed ``MAX_EXTRA_MEMORY_BYTES``.
MAX_EXTRA_MEMORY_BYTES = 30 * MEGABYTE
# The encoding of this file is unclear. To detect it, a worker process loads models of 23 MB, which
# stay in memory.
FILE_WITH_UNCLEAR_ENCODING = b"email,name\na@example.com,\xff\xfe\n"


def test_small_import_does_not_wait_for_another_owners_large_import(
    imports: ImportRunner, import_owner: Owner
) -> None:
    other_owner = imports.stack.create_owner()
    row_count = sized(100_000, 1_000_000)
    large_file = csv_of([[each, "A name"] for each in new_addresses(row_count)])
    start_import_worker(imports)
    large_import = imports.begin(import_owner, imports.new_list(import_owner), large_file)
    eventually(lambda: imports.of_job(large_import).chunk_bytes, what="the large import's start")
    small_import = imports.begin(
        other_owner,
        imports.new_list(other_owner),
        csv_of([[f"{random_hash_id()}@example.com", ""] for _ in range(100)]),
    )
    assert await_success(imports, small_import, within=60).added == 100
    assert imports.job(large_import).status not in FINISHED
    assert await_success(imports, large_import, within=sized(90, 900)).added == row_count
    # The worker interrupted the large import at least once, so that other jobs could run in the
    # meantime.
    assert imports.job(large_import).attempt > 1


def test_several_small_imports_pass_a_large_one(imports: ImportRunner, import_owner: Owner) -> None:
    """The worker has one process. With turns of several seconds, one or two imports would pass."""
    other_owner = imports.stack.create_owner()
    list_id = imports.new_list(other_owner)
    large_file = csv_of([[each, "A name"] for each in new_addresses(sized(150_000, 1_000_000))])
    start_import_worker(imports)
    large_import = imports.begin(import_owner, imports.new_list(import_owner), large_file)
    eventually(lambda: imports.of_job(large_import).chunk_bytes, what="the large import's start")
    passed = 0
    while imports.job(large_import).status not in FINISHED:
        small_file = csv_of([[each, ""] for each in new_addresses(100)])
        small_import = imports.begin(other_owner, list_id, small_file)
        await_success(imports, small_import, within=60)
        passed += imports.job(large_import).status not in FINISHED
    assert passed >= 4
    assert await_success(imports, large_import, within=5).added == sized(150_000, 1_000_000)


def hostile_files() -> dict[str, bytes]:
    bomb_compressor = zlib.compressobj(9, wbits=31)
    bomb = b"email\n" + b"a" * MEGABYTE
    compressed_bomb = bomb_compressor.compress(b"email\n") + b"".join(
        bomb_compressor.compress(b" " * MEGABYTE) for _ in range(300)
    )
    row_compressor = zlib.compressobj(6, wbits=31)
    noise = random.Random(1).randbytes(300).hex() * 400
    long_rows = b"".join(
        row_compressor.compress(b"m%d@example.com,%s\n" % (n, noise[n : n + 200_000].encode()))
        for n in range(2500)
    )
    return {
        "a line of 10 MB": b"email\n" + b"x" * (10 * MEGABYTE),
        "a bomb": compressed_bomb + bomb_compressor.flush(),
        "a million columns": b",".join([b"c"] * 1_000_000) + b"\na@example.com\n",
        "long rows": row_compressor.compress(b"") + long_rows + row_compressor.flush(),
        "NUL and worse": b"email,na\0me\na@example.com,\0\xff\xfe\n" + bomb[:0],
    }


def test_import_memory_stays_bounded_for_large_and_hostile_files(
    imports: ImportRunner, import_owner: Owner
) -> None:
    running = start_import_worker(imports)
    job_id = imports.begin(import_owner, imports.new_list(import_owner), FILE_WITH_UNCLEAR_ENCODING)
    assert imports.ended(job_id, within=60).status == "failed"
    _import_many(imports, import_owner, 10_000)
    with measure_peak_memory(running) as small_import_peak:
        _import_many(imports, import_owner, 10_000)
    with measure_peak_memory(running) as peak:
        _import_many(imports, import_owner, sized(100_000, 1_000_000))
        jobs = [
            imports.begin(import_owner, imports.new_list(import_owner), file, name=f"{name}.csv")
            for name, file in hostile_files().items()
        ]
        statuses = {imports.ended(each, within=90).status for each in jobs}
    assert peak[0] <= small_import_peak[0] + MAX_EXTRA_MEMORY_BYTES, (small_import_peak, peak)
    assert statuses <= {"failed", "succeeded"}
    assert "failed" in statuses
    codes = {(imports.job(each).error or {}).get("code") for each in jobs}
    assert not codes & {"job.internal_error", "job.worker_lost", "job.too_slow"}
    assert running.process.poll() is None
    _import_many(imports, import_owner, 100)


def _import_many(imports: ImportRunner, import_owner: Owner, rows: int) -> None:
    file = csv_of([[each, "A name"] for each in new_addresses(rows)])
    job_id = imports.begin(import_owner, imports.new_list(import_owner), file)
    assert await_success(imports, job_id, within=sized(60, 900)).added == rows


@contextmanager
def measure_peak_memory(running: Running) -> Iterator[list[int]]:
    """Measure the peak memory of a worker and its child processes during the block.

    Yields a list with a single number: the peak memory in bytes, measured as the sum of the
    proportional set sizes (PSS) of all these processes.
    """
    peak_bytes = [0]

    def measure_once() -> None:
        with suppress(OSError):
            current_bytes = sum(measure_memory(pid) for pid in (running.pid, *running.children()))
            peak_bytes[0] = max(peak_bytes[0], current_bytes)

    with repeating(measure_once, pause=0.05):
        yield peak_bytes
