"""Ends a stack's processes when its supervisor has died, even by `kill -9`.

It is run as a bare script (`python -I -S watcher.py`) so that it starts in milliseconds and is
small. Standard input is a pipe whose other end only the supervisor holds. Lines that come in:
`+PID SIGNAL` for a process group to look after, `-PID` for one that has ended. When the pipe
closes, each group left gets its signal and, three seconds later, SIGKILL.
"""

import os
import signal
import sys
import time

GRACE = 3.0


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
        send(pid, number)
    deadline = time.monotonic() + GRACE
    while any(exists(pid) for pid in groups) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in groups:
        send(pid, signal.SIGKILL, group=True)


def exists(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # Only zombies are left, as macOS puts it.
        return False
    return True


def send(pid: int, number: int, *, group: bool = False) -> None:
    try:
        if group:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        # Already gone: that is what we are here for.
        return


if __name__ == "__main__":
    main()
