"""A program that the supervisor runs, and its process, which the kernel kills with it."""

import enum
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core.process.linux import exit_with_parent
from devstack.supervisor.environment import cleaned
from devstack.supervisor.home_folder import StackError
from devstack.supervisor.ports import listens

_MAX_LOG_BYTES = 10 * 1024 * 1024
_SHOWN_LOG_BYTES, _SHOWN_LOG_LINES = 8192, 15


@dataclass(frozen=True)
class Program:
    """A program to run, and how to tell that it works.

    Attributes:
        ready: called until it says True, again after each restart. It must not raise, and not
            take longer than about a second: the supervisor waits meanwhile.
        port: where it listens. A port that was free when it was picked may have gone to another
            program meanwhile, which answers too: ready is who listens there itself.
        needs: names of the programs that must be ready before this one is started.
        once: it is expected to end with code 0, and counts as ready when it has.
        grace: seconds between the stop signal and the kill.
        run_as: user and group id, for a program that refuses to run as root.
    """

    name: str
    argv: tuple[str, ...]
    log: Path
    environment: Mapping[str, str]
    ready: Callable[[], bool] = lambda: True
    port: int | None = None
    prepare: Callable[[], None] = lambda: None
    after_end: Callable[[], None] = lambda: None
    needs: frozenset[str] = frozenset()
    once: bool = False
    stop_signal: signal.Signals = signal.SIGTERM
    grace: float = 20.0
    stdin: bytes = b""
    run_as: tuple[int, int] | None = None
    keep_open: tuple[int, ...] = ()
    directory: Path | None = None

    def rotate_log(self) -> None:
        """Put a log that has grown past its limit aside; one older log is kept."""
        if self.log.exists() and self.log.stat().st_size > _MAX_LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))

    def last_log_lines(self) -> str:
        """The end of the log; empty when there is no log."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - _SHOWN_LOG_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-_SHOWN_LOG_LINES:])


def _options(run_as: tuple[int, int] | None, keep_open: tuple[int, ...]) -> dict[str, Any]:
    tie = partial(exit_with_parent, os.getpid())
    options: dict[str, Any] = {"start_new_session": True, "pass_fds": keep_open, "preexec_fn": tie}
    if run_as is not None:
        options |= {"user": run_as[0], "group": run_as[1], "extra_groups": []}
    return options


def spawn(program: Program) -> subprocess.Popen[bytes]:
    """Start the program in a session of its own: a terminal's Ctrl-C is the supervisor's alone.

    Linux kills it when the *thread* that forked ends, so this must be called from the main thread;
    and code between fork and exec is safe only while that is the only one.
    """
    program.rotate_log()
    with program.log.open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - we compose the command lines ourselves
            program.argv,
            stdin=subprocess.PIPE if program.stdin else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(program.environment),
            cwd=program.directory,
            **_options(program.run_as, program.keep_open),
        )
    if process.stdin is not None:
        # A broken pipe means that the program ended before it read; its exit code tells why.
        with suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(program.stdin)
    return process


def run_to_end(
    argv: Sequence[str], run_as: tuple[int, int] | None, keep_open: tuple[int, ...]
) -> subprocess.CompletedProcess[str]:
    """Run a short program that must not outlive us either, and return what it wrote."""
    return subprocess.run(  # noqa: S603 - we compose the command lines ourselves
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=cleaned(),
        **_options(run_as, keep_open),
    )


_MIN_DELAY_SECONDS = 0.5
_MAX_DELAY_SECONDS = 10.0
_STABLE_AFTER_SECONDS = 30.0


class ChildState(enum.StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    DONE = "done"
    STOPPED = "stopped"


@dataclass
class Child:
    """A program's current process, and what restarts need to know of its past."""

    program: Program
    process: subprocess.Popen[bytes] | None = None
    state: ChildState = ChildState.WAITING
    started_at: float = 0.0
    ready_at: float | None = None
    failures: int = 0
    start_again_at: float = 0.0
    last_end: str = ""
    was_ready: bool = False

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
        """Return whether it waits for its first start, or for the next one after its pause."""
        is_waiting = self.state in (ChildState.WAITING, ChildState.RESTARTING)
        return is_waiting and time.monotonic() >= self.start_again_at

    def start(self) -> None:
        """Start it. A start that fails counts as an end: it is tried again after a pause."""
        self.started_at = time.monotonic()
        try:
            self.program.prepare()
            self.process = spawn(self.program)
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
        self.ready_at = time.monotonic()
        self.state = ChildState.READY
        self.was_ready = True
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
        """Return whether the child, once told to stop, has ended with all of its group."""
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
        # The rest of its process group. macOS refuses this where only zombies are left.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
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
