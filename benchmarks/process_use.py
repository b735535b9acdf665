"""Measures which resources processes use while a benchmark produces load."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psutil

from devstack.harness.process_memory import measure_memory

_MEGABYTE = 1024 * 1024


# Maps the name of each process to its memory in MB (PSS), in the order of measurement.
MemorySamples = dict[str, list[float]]


@contextmanager
def sample_memory(pids: Mapping[str, int], *, every: float) -> Iterator[MemorySamples]:
    """Measure the memory of processes and their descendants until the ``with`` block ends.

    Args:
        pids: maps the name of each process in the results to its process id.
        every: the time in seconds between two measurements.
    """
    samples: MemorySamples = {name: [] for name in pids}
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(every):
            for name, pid in pids.items():
                process = psutil.Process(pid)
                family = [process, *process.children(recursive=True)]
                size = sum(measure_memory(each.pid) for each in family)
                samples[name].append(size / _MEGABYTE)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield samples
    finally:
        stop.set()
        watcher.join()


def measure_cpu_seconds() -> float:
    """Return the CPU time of this process, and of all its descendants, since their start.

    The CPU time of ended descendants is included, but the CPU time of other programs isn't.
    """
    this = psutil.Process()
    seconds = 0.0
    for process in (this, *this.children(recursive=True)):
        try:
            seconds += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            # A process that has ended is counted in the CPU time of its parent.
            continue
    return seconds
