"""Compares an import's speed with the speed of plain SQL statements that write the same rows."""

import csv
import gzip
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from benchmarks.bulk_stack import BulkBench, Person, bulk_bench, create_people
from benchmarks.measure import Finding, alternate, is_full_size, measure_seconds, median_and_spread

MEMBERS = 1_000_000 if is_full_size() else 200_000
FEW = 10_000
ROUNDS = 3
MIN_SPEEDUP = 1.0
MIN_SPEEDUP_OF_TWO = 0.85
MEMBERS_OF_RATIO = 400_000 if is_full_size() else MEMBERS
MIN_RATIO = 1.4
# The warm-up import has chunks for both worker processes, so that both load their code before the
# measurement.
WARM_UP_MEMBERS = 60_000
MAX_GROWTH_MB = 50.0


def run() -> list[Finding]:
    with bulk_bench() as bench:
        # Measure the import of a small file first, because a worker's memory never shrinks after a
        # large file.
        bench.import_file(bench.new_list(), _build_file(create_people(FEW)), FEW)
        with bench.measure_peak() as small_file_peak:
            bench.import_file(bench.new_list(), _build_file(create_people(FEW)), FEW)
        with bench.measure_peak() as large_file_peak:
            bench.import_file(bench.new_list(), _build_file(create_people(MEMBERS)), MEMBERS)
        one_process = _compare_with_sql(bench, "", bench.add_plainly, MIN_SPEEDUP)
        with _second_worker(bench):
            name = " by 2 processes, SQL over 2 connections"
            two_processes = _compare_with_sql(
                bench, name, bench.add_plainly_by_two, MIN_SPEEDUP_OF_TWO
            )
        memory = _compare_memory(small_file_peak[0], large_file_peak[0])
        return [one_process, two_processes, _compare_processes(bench), memory]


def _compare_with_sql(
    bench: BulkBench,
    name_suffix: str,
    add_plainly: Callable[[int, Sequence[Person]], None],
    min_speedup: float,
) -> Finding:
    def baseline() -> float:
        fresh = create_people(MEMBERS)
        list_id = bench.new_list()
        seconds = measure_seconds(lambda: add_plainly(list_id, fresh))
        assert bench.count_members(list_id) == MEMBERS
        return seconds

    pairs = alternate(lambda: _measure_import(bench, MEMBERS), baseline, rounds=ROUNDS)
    ratio, spread = median_and_spread(
        [baseline_time / product_time for product_time, baseline_time in pairs]
    )
    details = {
        "product_per_s": round(
            MEMBERS / median_and_spread([product_time for product_time, _ in pairs])[0]
        ),
        "baseline_per_s": round(
            MEMBERS / median_and_spread([baseline_time for _, baseline_time in pairs])[0]
        ),
    }
    name = f"import-1m: {MEMBERS:,} from CSV.gz{name_suffix}"
    met = ratio >= min_speedup
    return Finding(name, ratio, "×", f"≥ {min_speedup:g} ×", met, spread, details)


def _compare_processes(bench: BulkBench) -> Finding:
    """Compare the import speed of two bulk worker processes with the speed of one process."""

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
    content = _build_file(create_people(count))
    list_id = bench.new_list()
    seconds = measure_seconds(lambda: bench.import_file(list_id, content, count))
    assert bench.count_members(list_id) == count
    return seconds


def _compare_memory(small_file_mb: float, large_file_mb: float) -> Finding:
    growth = large_file_mb - small_file_mb
    name = f"import-1m: worker, {MEMBERS:,} beside {FEW:,}"
    details = {"least_mb": round(small_file_mb, 1), "most_mb": round(large_file_mb, 1)}
    met = growth <= MAX_GROWTH_MB
    return Finding(name, growth, "MB", "≤ +50 MB", met, (growth, growth), details)


def _build_file(members: Sequence[Person]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("Email Address", "Name"))
    writer.writerows(members)
    return gzip.compress(text.getvalue().encode(), compresslevel=6)
