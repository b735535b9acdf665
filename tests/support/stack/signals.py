"""Pauses, resumes and kills processes of a stack, and reads data about processes from /proc."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from devstack.harness.running import Running


def kill_with_children(running: Running) -> None:
    children = running.children() if running.process.poll() is None else []
    running.kill()
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def pause_process(running: Running) -> None:
    """Pause a process and its child processes with SIGSTOP, as if the machine was suspended."""
    _send_signal(running, signal.SIGSTOP)


def resume_process(running: Running) -> None:
    """Resume a paused process and its child processes with SIGCONT."""
    _send_signal(running, signal.SIGCONT)


def list_children(pid: int) -> list[int]:
    children: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            children += map(int, (thread / "children").read_text().split())
    return children


def count_descriptors(running: Running) -> int:
    return sum(1 for _ in Path(f"/proc/{running.pid}/fd").iterdir())


def _send_signal(running: Running, number: signal.Signals) -> None:
    if running.process.poll() is None:
        for pid in (running.pid, *running.children()):
            os.kill(pid, number)
