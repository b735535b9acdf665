"""Puts the data of embedded services on small file systems, which a test can fill."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.prerequisites import skip_or_fail

_BLOCK = b"x" * 65_536
_MAX_UNMOUNT_SECONDS = 30.0


@dataclass(frozen=True)
class SmallDisk:
    """A file system in memory."""

    path: Path

    @property
    def _ballast(self) -> Path:
        return self.path / "ballast"

    def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(_BLOCK)

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


@contextmanager
def mount_small_disk(path: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Mount an empty file system at ``path`` until the block ends.

    Skip the test if this process may not mount file systems.
    """
    path.mkdir(mode=0o711, exist_ok=True)
    options = f"size={megabytes}m,mode=0711"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", path],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        skip_or_fail(f"this user can't mount a file system: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        _unmount(path)


@contextmanager
def full_disks(*disks: SmallDisk) -> Iterator[None]:
    with ExitStack() as freed:
        for disk in disks:
            freed.callback(disk.free)
            disk.fill()
        yield


def _unmount(path: Path) -> None:
    deadline = time.monotonic() + _MAX_UNMOUNT_SECONDS
    while os.path.ismount(path):
        # A process that has just been killed may still use the file system.
        if subprocess.run(["umount", path], capture_output=True, check=False).returncode != 0:
            assert time.monotonic() < deadline, f"{path} is still in use"
            time.sleep(0.2)
