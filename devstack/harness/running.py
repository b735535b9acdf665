"""Controls a Pressroom program that leads its own process group."""

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Running:
    name: str
    process: subprocess.Popen[bytes]
    log: Path
    _is_terminated: bool = False
    _start_time: str = field(init=False)

    def __post_init__(self) -> None:
        self._start_time = _read_start_time(self.pid)

    @property
    def pid(self) -> int:
        return self.process.pid

    def children(self) -> list[int]:
        text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    def kill(self) -> None:
        """Kill only the main process, as the kernel does when memory runs out."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        if not self._is_terminated and self.process.poll() is None:
            self.process.terminate()
        self._is_terminated = True

    def stop(self, within: float = 30.0) -> int:
        """Terminate the program, kill its process group, and return the program's exit code."""
        self.terminate()
        try:
            return self.process.wait(within)
        finally:
            self.destroy()

    def destroy(self) -> None:
        # The kernel may have reused the pid, so compare the start time.
        if _read_start_time(self.pid) in ("", self._start_time):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


def _read_start_time(pid: int) -> str:
    """Return a process's start time in clock ticks, or "" if the process doesn't exist. The pid of
    a group leader isn't reused while its process group has members.
    """
    try:
        # Search for the last closing parenthesis, because process names may contain parentheses
        # (proc(5)).
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
