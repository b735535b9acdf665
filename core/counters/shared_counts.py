"""The counts of a worker and of its pool's processes, as those of one that is scraped.

Each process of a pool counts in files of its own in one folder, which outlive it: so what a killed
process has counted stays, and the sums never fall. The counts of those that have ended are folded
into one file, so that neither files nor series grow with the number of processes that there were.
(docs/decisions/0028-metrics-of-workers.md)
"""

import atexit
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

_ADDRESS_VARIABLE = "PRESSROOM_WORKER_METRICS_ADDRESS"
_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX = "pressroom-metrics-"
# Stands where a file's name has the process that writes it.
_ENDED = "ended"


def share_counts() -> None:
    """Let this process and those that it forks count in shared files, if it is to be scraped.

    The library looks for the folder when it is imported.
    """
    if not os.environ.get(_ADDRESS_VARIABLE):
        return
    if "prometheus_client" in sys.modules:
        raise RuntimeError("counts are shared before anything is counted")
    _remove_left_folders()
    folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
    os.environ[_FOLDER_VARIABLE] = folder
    atexit.register(forget_counts, os.getpid())


def forget_counts(process: int | None = None) -> None:
    """Remove the folder, at the end of the process that made it; ``process``: of no other."""
    folder = os.environ.get(_FOLDER_VARIABLE)
    if folder and process in (None, os.getpid()):
        shutil.rmtree(folder, ignore_errors=True)


def shared_registry() -> "CollectorRegistry":
    """What this process and its pool have counted together."""
    from prometheus_client import CollectorRegistry, ProcessCollector

    registry = CollectorRegistry()
    registry.register(_SharedCounts(Path(os.environ[_FOLDER_VARIABLE])))  # type: ignore[arg-type]
    ProcessCollector(registry=registry)
    return registry


class _SharedCounts:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def collect(self) -> Iterable["Metric"]:
        from prometheus_client.multiprocess import MultiProcessCollector

        # One scrape at a time: no file is read while it is folded.
        with self._lock:
            _fold_ended(self._folder)
            files = [str(file) for file in self._folder.glob("*.db")]
            merged: Iterable[Metric] = MultiProcessCollector.merge(files)
        return merged


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
    from prometheus_client.mmap_dict import MmapedDict

    sums = list(_sums([*files, into] if into.exists() else files))
    written = MmapedDict(str(into))  # type: ignore[no-untyped-call]
    for key, value in sums:
        written.write_value(key, value, 0.0)  # type: ignore[no-untyped-call]
    written.close()  # type: ignore[no-untyped-call]


def _sums(files: list[Path]) -> Iterator[tuple[str, float]]:
    from prometheus_client.mmap_dict import mmap_key
    from prometheus_client.multiprocess import MultiProcessCollector

    names = [str(file) for file in files]
    merged: Any = MultiProcessCollector.merge(names, accumulate=False)
    for metric in merged:
        for sample in metric.samples:
            labels = sample.labels
            key = mmap_key(  # type: ignore[no-untyped-call]
                metric.name, sample.name, list(labels), list(labels.values()), metric.documentation
            )
            yield key, sample.value


def _is_written(file: Path) -> bool:
    """Whether the process that writes the file lives, or the file is that of the ended ones."""
    process = file.stem.rpartition("_")[2]
    return process == _ENDED or _lives(int(process))


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove_left_folders() -> None:
    """Those of workers that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        process = folder.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):
            is_ours = folder.stat(follow_symlinks=False).st_uid == os.getuid()
            if process.isdigit() and is_ours and not _lives(int(process)):
                shutil.rmtree(folder, ignore_errors=True)
