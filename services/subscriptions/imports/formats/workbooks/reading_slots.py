"""Limits how many workbooks the processes of a container read at the same time.

A child process that reads a workbook can use a lot of memory. Two workbooks are read at the same
time at most: one with a low memory limit, and one with the full memory limit. A workbook that needs
more memory than the low limit is read again with the full limit.
"""

import fcntl
import os
import tempfile
from contextlib import suppress
from enum import IntEnum
from hashlib import sha256
from pathlib import Path

_FILE_MODE = 0o600


class MemoryLimit(IntEnum):
    """The maximum address space of the child process that reads a workbook, in bytes."""

    LOW = 128 * 1024**2
    FULL = 1024**3


class ReadingSlot:
    """The permission to read a workbook with a memory limit.

    At most one process on this machine has the permission. The kernel takes it from a killed
    process.
    """

    def __init__(self, limit: MemoryLimit, deployment: str) -> None:
        digest = sha256(deployment.encode()).hexdigest()[:16]
        name = f"pressroom-{os.getuid()}-{digest}-{limit.name.lower()}"
        self._slot = _FileLock(Path(tempfile.gettempdir(), f"{name}.slot"))
        # Only the process that waits longest holds the second lock, and can get the slot. Otherwise
        # a process with many workbooks could get the slot again and again.
        self._turn = _FileLock(Path(tempfile.gettempdir(), f"{name}.turn"))

    def acquire(self) -> bool:
        if not self._turn.acquire() or not self._slot.acquire():
            return False
        self._turn.release()
        return True

    def release(self) -> None:
        self._slot.release()
        self._turn.release()


class _FileLock:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        if self._descriptor is not None:
            return True
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, _FILE_MODE)
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._descriptor = descriptor
            return True
        os.close(descriptor)
        return False

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
