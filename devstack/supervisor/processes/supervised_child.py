"""One supervised child: its process, its state and its restarts."""

import enum
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass

from devstack.supervisor.errors import StackError
from devstack.supervisor.processes.ports import listens
from devstack.supervisor.processes.program import Program
from devstack.supervisor.processes.spawn import spawn
from devstack.supervisor.processes.watcher_client import Watcher

_MIN_DELAY_SECONDS = 0.5
_MAX_DELAY_SECONDS = 10.0
_STABLE_AFTER_SECONDS = 30.0
_ASK_EVERY_SECONDS = 5.0
MAX_SILENCE_SECONDS = 30.0
# Between two kills of a child that stalls again and again, such as while its broker is away: the
# pause doubles with each.
_MIN_STALL_PAUSE_SECONDS = 60.0
_MAX_STALL_PAUSE_SECONDS = 900.0


class ChildState(enum.StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    DONE = "done"
    STOPPED = "stopped"


@dataclass
class Child:
    """One program's current process, and what restarts need to know of its past."""

    program: Program
    watcher: Watcher
    process: subprocess.Popen[bytes] | None = None
    state: ChildState = ChildState.WAITING
    started_at: float = 0.0
    ready_at: float | None = None
    failures: int = 0
    start_again_at: float = 0.0
    last_end: str = ""
    was_ready: bool = False
    asked_at: float = 0.0
    alive_at: float = 0.0
    stalls: int = 0
    spared_until: float = 0.0

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    @property
    def took(self) -> float:
        """Seconds from its start until it was ready, or until now."""
        return (self.ready_at or time.monotonic()) - self.started_at

    @property
    def is_usable(self) -> bool:
        return self.state in (ChildState.READY, ChildState.DONE)

    @property
    def is_due(self) -> bool:
        """Whether it waits for its first start, or for its next one and the pause is over."""
        is_waiting = self.state in (ChildState.WAITING, ChildState.RESTARTING)
        return is_waiting and time.monotonic() >= self.start_again_at

    def start(self) -> None:
        """Start it. A start that fails counts as an end: it is tried again after a pause."""
        self.started_at = time.monotonic()
        try:
            self.program.prepare()
            self.process = spawn(self.program, self.watcher)
        except (OSError, subprocess.SubprocessError, StackError) as error:
            self.last_end = f"could not be started: {error}"
            self._schedule_restart()
        else:
            self.state = ChildState.STARTING

    def notice_ready(self) -> bool:
        """Ask a starting child whether it is ready; True at the moment it becomes so."""
        if self.state is not ChildState.STARTING or self.program.once or not self.program.ready():
            return False
        if self.program.port and self.pid and not listens(self.pid, self.program.port):
            return False
        self.ready_at = self.asked_at = self.alive_at = time.monotonic()
        self.state = ChildState.READY
        self.was_ready = True
        return True

    def notice_stall(self) -> bool:
        """Kill a ready child that gives no sign of life; True at the moment it is killed.

        Its end is noticed like any other. A stopped process hears no signal but SIGKILL.
        """
        now = time.monotonic()
        if self.state is not ChildState.READY or now - self.asked_at < _ASK_EVERY_SECONDS:
            return False
        self.asked_at = now
        if self.program.alive():
            self.alive_at = now
            return False
        if now - self.alive_at < MAX_SILENCE_SECONDS or now < self.spared_until:
            return False
        if now - self.spared_until > _MAX_STALL_PAUSE_SECONDS:
            self.stalls = 0
        pause = min(_MIN_STALL_PAUSE_SECONDS * 2**self.stalls, _MAX_STALL_PAUSE_SECONDS)
        self.spared_until = now + pause
        self.stalls += 1
        self.send(signal.SIGKILL)
        return True

    def notice_end(self) -> None:
        """If the process has ended, bury it, and plan a restart unless the end was expected."""
        if self.process is None or self.process.poll() is None:
            return
        if self._bury() == 0 and self.program.once:
            self.state, self.was_ready = ChildState.DONE, True
            self.ready_at = time.monotonic()
        else:
            self._schedule_restart()

    def send(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def notice_stopped(self) -> bool:
        """Whether the child, once told to stop, has ended with all of its group."""
        if self.process is not None:
            if self.process.poll() is None:
                return False
            self._bury()
        self.state = ChildState.STOPPED
        return True

    def _bury(self) -> int:
        """Forget an ended process, and end what it left behind in its group."""
        assert self.process is not None
        pid, code = self.process.pid, self.process.returncode
        # What is left of its process group. macOS refuses this where only zombies are left.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        self.watcher.forget(pid)
        self.process = None
        self.last_end = describe_end(code)
        self.program.after_end()
        return code

    def _schedule_restart(self) -> None:
        now = time.monotonic()
        if self.ready_at is not None and now - self.ready_at >= _STABLE_AFTER_SECONDS:
            self.failures = 0
        delay = min(_MAX_DELAY_SECONDS, _MIN_DELAY_SECONDS * 2**self.failures)
        self.failures += 1
        self.ready_at = None
        self.start_again_at = now + delay
        self.state = ChildState.RESTARTING


def describe_end(code: int) -> str:
    """An exit code in words: `ended with code 3`, `was killed by SIGKILL`."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
