"""Ends a stack's processes when its supervisor has died, even by `kill -9`.

The supervisor runs it as a bare script (`python -I -S watcher.py`), so that it starts in
milliseconds and stays small. Standard input is a pipe whose other end only the supervisor holds.
A line says `+PID SIGNAL` for a process group to watch, or `-PID` for one that has ended. When the
pipe closes, each group left gets its signal and, three seconds later, SIGKILL.
"""

import os
import signal
import sys
import time

GRACE_SECONDS = 3.0


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    groups: dict[int, int] = {}
    for line in sys.stdin:
        if line.startswith("+"):
            pid, number = line[1:].split()
            groups[int(pid)] = int(number)
        else:
            groups.pop(int(line[1:]), None)
    end(groups)


def end(groups: dict[int, int]) -> None:
    for pid, number in groups.items():
        reaches(pid, number)
    deadline = time.monotonic() + GRACE_SECONDS
    while any(reaches(-pid, 0) for pid in groups) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in groups:
        reaches(-pid, signal.SIGKILL)


def reaches(pid: int, number: int) -> bool:
    """Whether the signal finds a process; a pid below zero means the group of its leader."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        # macOS denies permission for a group in which only zombies are left.
        return False
    return True


if __name__ == "__main__":
    main()
