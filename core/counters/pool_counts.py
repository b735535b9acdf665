"""Merges the metrics of a worker and its pool processes into one scrape target.

Each pool process counts in its own files. The files outlive the process, so a killed process
doesn't reduce any sum. The counts of ended processes are merged into one file. The number of files
therefore doesn't grow with the number of processes that ever ran.
(docs/decisions/0028-metrics-of-workers.md)
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

# Replaces the process id in the name of a file that holds the counts of ended processes.
_ENDED = "ended"


def create_pool_registry(folder: Path) -> CollectorRegistry:
    """Return a registry with the sums of all processes that count in the folder."""
    registry = CollectorRegistry()
    registry.register(_PoolCounts(folder))
    ProcessCollector(registry=registry)
    return registry


class _PoolCounts(Collector):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def collect(self) -> Iterable[Metric]:
        # The lock serializes scrapes, so that no scrape reads a file during its merge.
        with self._lock:
            _merge_ended_processes(self._folder)
            return _read_metrics(self._folder.glob("*.db"), accumulate=True)


def _merge_ended_processes(folder: Path) -> None:
    abandoned_files = [file for file in folder.glob("*.db") if not _is_current(file)]
    for kind in ("counter", "histogram"):
        files = [file for file in abandoned_files if file.name.startswith(f"{kind}_")]
        if files:
            _merge_files(files, folder / f"{kind}_{_ENDED}.db")
    # Delete the gauges too, because a gauge of an ended process has no meaning.
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
    """Return the summed metrics of the files.

    Args:
        accumulate: whether to add up the buckets of histograms. A scrape needs accumulated buckets,
            and a file stores separate buckets.
    """
    names = list(map(str, files))
    metrics: Iterable[Metric] = MultiProcessCollector.merge(names, accumulate)  # type: ignore[no-untyped-call]
    return metrics


def _is_current(file: Path) -> bool:
    """Return whether a running process writes the file, or the file holds the merged counts."""
    process = file.stem.rpartition("_")[2]
    return process == _ENDED or is_running(int(process))
