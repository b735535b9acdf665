import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cli.doctor.diagnoses import CheckAnswer, Part, fine, wrong
from core.settings import Settings

# What a busy API process opens at the same time; the addresses of a file of a million members.
_MIN_DESCRIPTORS = 4096
_MIN_FREE_BYTES = 64 * 2**20
_MIN_MEMORY_BYTES = 256 * 2**20
_MEMORY_BOUND = Path("/sys/fs/cgroup/memory.max")


def _ask(_: Settings) -> Iterator[CheckAnswer]:
    yield _temporary()
    yield _descriptors()
    yield _memory()


MACHINE = Part("this machine", _ask)


def _temporary() -> CheckAnswer:
    """Where a bulk worker keeps the addresses of a large file, and a backup what it sends."""
    folder = os.environ.get("SQLITE_TMPDIR") or tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    found = f"{free // 2**20} MB are free in {folder}"
    if free < _MIN_FREE_BYTES:
        return wrong("disk", found, "Make room, or name another folder in SQLITE_TMPDIR.")
    return fine("disk", found)


def _descriptors() -> CheckAnswer:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = "unlimited" if most == resource.RLIM_INFINITY else str(most)
    if most != resource.RLIM_INFINITY and most < _MIN_DESCRIPTORS:
        return wrong("open files", shown, f"Raise the limit (ulimit -n) to {_MIN_DESCRIPTORS}.")
    return fine("open files", shown)


def _memory() -> CheckAnswer:
    bound = _MEMORY_BOUND.read_text().strip() if _MEMORY_BOUND.exists() else "max"
    if bound == "max":
        return fine("memory", "no bound of its own")
    megabytes = int(bound) // 2**20
    if int(bound) < _MIN_MEMORY_BYTES:
        return wrong("memory", f"at most {megabytes} MB", "Give the container more memory.")
    return fine("memory", f"at most {megabytes} MB")
