"""Merges the metrics of a worker and its pool processes into one scrape target.

Each pool process writes its metrics to files of its own. A process's metrics are kept after it
exits, so that the worker's counters never decrease. The files of exited processes are merged, so
that their number stays small. (docs/decisions/0028-metrics-of-workers.md)
"""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from core.counters.shared_counts import is_running

# The name of a file with merged metrics contains ``ended`` in place of a process id.
_ENDED = "ended"


def create_pool_registry(folder: Path) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_PoolCounts(folder))
    ProcessCollector(registry=registry)
    return registry


class _PoolCounts(Collector):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def collect(self) -> Iterable[Metric]:
        # Run one scrape at a time, because a scrape must not read files that another scrape is
        # merging.
        with self._lock:
            _merge_ended_processes(self._folder)
            return _read_metrics(self._folder.glob("*.db"), accumulate=True)


def _merge_ended_processes(folder: Path) -> None:
    abandoned_files = [file for file in folder.glob("*.db") if not _is_current(file)]
    for kind in ("counter", "histogram"):
        files = [file for file in abandoned_files if file.name.startswith(f"{kind}_")]
        if files:
            _merge_files(files, folder / f"{kind}_{_ENDED}.db")
    # Delete the gauges of exited processes, because a gauge describes only a running process.
    for file in abandoned_files:
        file.unlink()


def _merge_files(files: list[Path], target: Path) -> None:
    sums: list[tuple[str, float]] = []
    sources = [*files, target] if target.exists() else files
    for metric in _read_metrics(sources, accumulate=False):
        for sample in metric.samples:
            label_names = list(sample.labels)
            label_values = list(sample.labels.values())
            key = mmap_key(
                metric.name, sample.name, label_names, label_values, metric.documentation
            )
            sums.append((key, sample.value))
    target_values: Any = MmapedDict(str(target))  # type: ignore[no-untyped-call]
    for key, value in sums:
        target_values.write_value(key, value, 0.0)
    target_values.close()


def _read_metrics(files: Iterable[Path], *, accumulate: bool) -> Iterable[Metric]:
    """Return the sum of each metric over several processes' files.

    If ``accumulate`` is true, histogram buckets have the cumulative form that Prometheus expects.
    """
    names = list(map(str, files))
    metrics: Iterable[Metric] = MultiProcessCollector.merge(names, accumulate)  # type: ignore[no-untyped-call]
    return metrics


def _is_current(file: Path) -> bool:
    process = file.stem.rpartition("_")[2]
    return process == _ENDED or is_running(int(process))
