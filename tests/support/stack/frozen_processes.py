"""Freezes a process with SIGSTOP for the duration of a block."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Freeze the process until the block ends."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
