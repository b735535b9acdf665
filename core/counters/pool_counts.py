"""The counts of a worker and of its pool's processes, as those of one that is scraped.

Each process of a pool counts in files of its own, which outlive it: so what a killed process has
counted stays, and the sums never fall. The counts of those that have ended are folded into one
file, so that neither files nor series grow with the number of processes that there were.
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

from core.counters.shared_counts import lives

# Stands where a file's name has the process that writes it.
_ENDED = "ended"


def pool_registry(folder: Path) -> CollectorRegistry:
    """Return the sums of the processes that count in this folder."""
    registry = CollectorRegistry()
    registry.register(_PoolCounts(folder))
    ProcessCollector(registry=registry)
    return registry


class _PoolCounts(Collector):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def collect(self) -> Iterable[Metric]:
        # The lock allows one scrape at a time: no file is read while it is folded.
        with self._lock:
            _fold_ended(self._folder)
            return _merged(self._folder.glob("*.db"), accumulate=True)


def _fold_ended(folder: Path) -> None:
    ended = [file for file in folder.glob("*.db") if not _is_written(file)]
    for kind in ("counter", "histogram"):
        files = [file for file in ended if file.name.startswith(f"{kind}_")]
        if files:
            _fold(files, folder / f"{kind}_{_ENDED}.db")
    # A gauge says how things are, and nothing is in a process that has ended.
    for file in ended:
        file.unlink()


def _fold(files: list[Path], into: Path) -> None:
    sums: list[tuple[str, float]] = []
    for metric in _merged([*files, into] if into.exists() else files, accumulate=False):
        for sample in metric.samples:
            labels = list(sample.labels), list(sample.labels.values())
            key = mmap_key(metric.name, sample.name, *labels, metric.documentation)
            sums.append((key, sample.value))
    written: Any = MmapedDict(str(into))  # type: ignore[no-untyped-call]
    for key, value in sums:
        written.write_value(key, value, 0.0)
    written.close()


def _merged(files: Iterable[Path], *, accumulate: bool) -> Iterable[Metric]:
    """``accumulate``: as they are told; else as they are written to a file."""
    names = list(map(str, files))
    found: Iterable[Metric] = MultiProcessCollector.merge(names, accumulate)  # type: ignore[no-untyped-call]
    return found


def _is_written(file: Path) -> bool:
    """Return whether the process that writes the file lives, or the file is that of the ended
    ones.
    """
    process = file.stem.rpartition("_")[2]
    return process == _ENDED or lives(int(process))
