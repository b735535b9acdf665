"""Ends a stack's processes when its supervisor has died, even by `kill -9`.

The supervisor runs it as a bare script (`python -I -S watcher.py`), so that it starts in
milliseconds and stays small. Standard input is a pipe whose other end only the supervisor holds.
A line says `+PID SIGNAL` for a process group to watch, or `-PID` for one that has ended. When the
pipe closes, each group left gets its signal and, three seconds later, SIGKILL. A group that has
ended unnoticed gets none: the system may have given its number to somebody else's process.
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
    began: dict[int, str] = {}
    for line in sys.stdin:
        if line.startswith("+"):
            pid, number = map(int, line[1:].split())
            groups[pid] = number
            began[pid] = beginning(pid)
        else:
            groups.pop(int(line[1:]), None)
    end({pid: number for pid, number in groups.items() if beginning(pid) in ("", began[pid])})


def end(groups: dict[int, int]) -> None:
    for pid, number in groups.items():
        reaches(pid, number)
    deadline = time.monotonic() + GRACE_SECONDS
    while any(reaches(-pid, 0) for pid in groups) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in groups:
        reaches(-pid, signal.SIGKILL)


def beginning(pid: int) -> str:
    """When the process began, in ticks; "" where there is none or the system does not tell.

    While a group has members, no new process gets the number of its leader.
    """
    try:
        # A bare script: to import pathlib takes longer than all else here.
        with open(f"/proc/{pid}/stat", "rb") as told:  # noqa: PTH123
            # The second of 52 fields is a name, which may have blanks and brackets in it (proc(5)).
            return told.read().rpartition(b")")[2].split()[19].decode()
    except OSError:
        return ""


def reaches(pid: int, number: int) -> bool:
    """Return whether the signal finds a process; a pid below zero means the group of its leader."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        # macOS denies permission for a group in which only zombies are left.
        return False
    return True


if __name__ == "__main__":
    main()
