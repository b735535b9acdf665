"""Runs busy loops, as other programs on a crowded machine do.

``python -m devstack.harness.busy_loops PARENT SECONDS COUNT`` runs busy loops in one session.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from core.process.linux import exit_with_parent

_ROOT = Path(__file__).parents[2]
_STEPS_PER_CHECK = 100_000


@contextmanager
def busy_loops(count: int, *, max_seconds: float, in_one_session: bool = False) -> Iterator[None]:
    """Keep the processor busy with ``count`` loops of ordinary priority in the ``with`` block.

    The loops also end after ``max_seconds``, or when the calling thread ends. By default, each loop
    has a session of its own, because Linux divides the processor's time among sessions first (``man
    7 sched``, autogroups).
    """
    sizes = [count] if in_one_session else [1] * count
    with ExitStack() as ending:
        for size in sizes:
            arguments = map(str, (os.getpid(), max_seconds, size))
            process = subprocess.Popen(  # noqa: S603 - our own module, numbers for arguments
                [sys.executable, "-m", __name__, *arguments], cwd=_ROOT, start_new_session=True
            )
            ending.callback(process.wait)
            ending.callback(process.kill)
        yield


def _loop(parent: int, seconds: float, count: int) -> None:
    exit_with_parent(parent)
    deadline = time.monotonic() + seconds
    first = os.getpid()
    for _ in range(count - 1):
        if os.fork() == 0:
            exit_with_parent(first)
            break
    while time.monotonic() < deadline:
        for _ in range(_STEPS_PER_CHECK):
            pass


if __name__ == "__main__":
    _loop(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
