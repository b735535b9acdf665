"""A file of members, upload to the job's end, beside the same rows written plainly."""

import csv
import gzip
import io
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psutil

from benchmarks.bulk_stack import BulkBench, Person, bulk_bench, people
from benchmarks.measure import Finding, alternate, full_size, median_and_spread, seconds_of
from devstack.harness.polling import eventually
from devstack.harness.process_memory import measure_memory

MEMBERS = 1_000_000 if full_size() else 200_000
FEW = 10_000
ROUNDS = 3
LEAST_TIMES = 1.0
LEAST_TIMES_OF_TWO = 0.85
MEMBERS_OF_RATIO = 400_000 if full_size() else MEMBERS
MIN_RATIO = 1.4
# The warm-up import has chunks for two processes, so that both processes have loaded their code
# before the measurement.
WARM_UP_MEMBERS = 60_000
MOST_MORE_MB = 50.0
_SAMPLE_EVERY_SECONDS = 0.05


def run() -> list[Finding]:
    with bulk_bench() as bench:
        # Grows with the file, if anything does: so it is looked at before anything larger.
        few, small = people(FEW), _file(people(FEW))
        _import(bench, bench.new_list(), small, len(few))
        with _peak(bench) as least:
            _import(bench, bench.new_list(), _file(people(FEW)), FEW)
        with _peak(bench) as most:
            _import(bench, bench.new_list(), _file(people(MEMBERS)), MEMBERS)
        of_one = _speed(bench, "", bench.add_plainly, LEAST_TIMES)
        with _second_worker(bench):
            name = " by 2 processes, SQL over 2 connections"
            of_two = _speed(bench, name, bench.add_plainly_by_two, LEAST_TIMES_OF_TWO)
        return [of_one, of_two, _compare_processes(bench), _memory(least[0], most[0])]


def _speed(
    bench: BulkBench,
    by: str,
    add_plainly: Callable[[int, Sequence[Person]], None],
    least: float,
) -> Finding:
    def baseline() -> float:
        fresh, list_id = people(MEMBERS), bench.new_list()
        seconds = seconds_of(lambda: add_plainly(list_id, fresh))
        assert bench.members(list_id) == MEMBERS
        return seconds

    pairs = alternate(lambda: _measure_import(bench, MEMBERS), baseline, rounds=ROUNDS)
    ratio, spread = median_and_spread([theirs / mine for mine, theirs in pairs])
    details = {
        "product_per_s": round(MEMBERS / median_and_spread([mine for mine, _ in pairs])[0]),
        "baseline_per_s": round(MEMBERS / median_and_spread([theirs for _, theirs in pairs])[0]),
    }
    name = f"import-1m: {MEMBERS:,} from CSV.gz{by}"
    return Finding(name, ratio, "×", f"≥ {least:g} ×", ratio >= least, spread, details)


def _compare_processes(bench: BulkBench) -> Finding:
    """Compare the import rate of two bulk worker processes with the rate of one process."""

    def import_by_two() -> float:
        with _second_worker(bench):
            return _measure_import(bench, MEMBERS_OF_RATIO)

    pairs = alternate(
        import_by_two, lambda: _measure_import(bench, MEMBERS_OF_RATIO), rounds=ROUNDS
    )
    ratio, spread = median_and_spread([one / two for two, one in pairs])
    seconds_by_two, _ = median_and_spread([two for two, _ in pairs])
    seconds_by_one, _ = median_and_spread([one for _, one in pairs])
    details = {
        "two_per_s": round(MEMBERS_OF_RATIO / seconds_by_two),
        "one_per_s": round(MEMBERS_OF_RATIO / seconds_by_one),
    }
    name = f"import-1m: {MEMBERS_OF_RATIO:,}, 2 processes beside 1"
    return Finding(name, ratio, "×", f"≥ {MIN_RATIO:g} ×", ratio >= MIN_RATIO, spread, details)


@contextmanager
def _second_worker(bench: BulkBench) -> Iterator[None]:
    worker = bench.stack.start_worker("bulk", concurrency=1)
    try:
        _measure_import(bench, WARM_UP_MEMBERS)
        yield
    finally:
        worker.stop()


def _measure_import(bench: BulkBench, count: int) -> float:
    """Return how many seconds an import of ``count`` new members takes."""
    content = _file(people(count))
    list_id = bench.new_list()
    seconds = seconds_of(lambda: _import(bench, list_id, content, count))
    assert bench.members(list_id) == count
    return seconds


def _memory(least: float, most: float) -> Finding:
    more = most - least
    name = f"import-1m: worker, {MEMBERS:,} beside {FEW:,}"
    details = {"least_mb": round(least, 1), "most_mb": round(most, 1)}
    return Finding(name, more, "MB", "≤ +50 MB", more <= MOST_MORE_MB, (more, more), details)


@contextmanager
def _peak(bench: BulkBench) -> Iterator[list[float]]:
    """The most that the worker and its children held together meanwhile, in MB (PSS)."""
    found, stop = [0.0], threading.Event()

    def watch() -> None:
        while not stop.wait(_SAMPLE_EVERY_SECONDS):
            found[0] = max(found[0], _held(bench))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        stop.set()
        watcher.join()


def _held(bench: BulkBench) -> float:
    main = psutil.Process(bench.worker.pid)
    family = (main, *main.children(recursive=True))
    return sum(measure_memory(process.pid) for process in family) / 1e6


def _file(members: Sequence[Person]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("Email Address", "Name"))
    writer.writerows(members)
    return gzip.compress(text.getvalue().encode(), compresslevel=6)


def _import(bench: BulkBench, list_id: int, sent: bytes, expected: int) -> None:
    reply = bench.client.post(
        f"/lists/{list_id}/imports",
        params={"filename": "members.csv.gz"},
        content=sent,
        headers={"Content-Type": "application/octet-stream", "Prefer": "wait=60"},
    )
    assert reply.is_success, reply.text
    job = reply.json()["data"]

    def ended() -> bool:
        nonlocal job
        job = bench.client.get(f"/jobs/{job['id']}").json()["data"]
        return job["status"] not in {"queued", "running"}

    eventually(ended, within=600, what="the import's end")
    assert job["result"]["added"] == expected, job
