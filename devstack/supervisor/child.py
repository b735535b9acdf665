"""Runs programs as child processes, which the kernel kills when the supervisor ends."""

import enum
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from core.pauses import Pauses
from core.process.linux import exit_with_parent
from devstack.supervisor.environment import clean_environment
from devstack.supervisor.home_folder import StackError
from devstack.supervisor.ports import is_listening

_MAX_LOG_BYTES = 10 * 1024 * 1024
_MAX_SHOWN_LOG_BYTES = 8192
_MAX_SHOWN_LOG_LINES = 15
# The delays before a restart, and the longest delay of a program that was ready before.
_DELAYS = Pauses.double(timedelta(seconds=0.5), timedelta(seconds=10))
_MAX_RESTART_DELAY = timedelta(seconds=2)
_STABLE_AFTER_SECONDS = 30.0


@dataclass(frozen=True)
class Program:
    """A program that the supervisor runs.

    Attributes:
        is_ready: a function that the supervisor calls repeatedly until it returns true.
            ``is_ready`` must return within about a second and must not raise an exception, because
            the supervisor waits for the result.
        port: the TCP port on which the program listens. The program is ready only if its own
            process listens on the port.
        needs: the names of the programs that must be ready before the program is started.
        runs_once: whether the program ends by itself. A program that ends by itself counts as ready
            when it has ended with exit code 0.
        grace_seconds: the time in seconds between the stop signal and the kill.
        run_as: the user id and group id for a program that refuses to run as root.
    """

    name: str
    argv: tuple[str, ...]
    log: Path
    environment: Mapping[str, str]
    is_ready: Callable[[], bool] = lambda: True
    port: int | None = None
    prepare: Callable[[], None] = lambda: None
    after_end: Callable[[], None] = lambda: None
    needs: frozenset[str] = frozenset()
    runs_once: bool = False
    stop_signal: signal.Signals = signal.SIGTERM
    grace_seconds: float = 20.0
    stdin: bytes = b""
    run_as: tuple[int, int] | None = None
    keep_open: tuple[int, ...] = ()
    directory: Path | None = None

    def rotate_log(self) -> None:
        """Rename the program's log file to ``.log.1`` if the file is too large."""
        if self.log.exists() and self.log.stat().st_size > _MAX_LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))

    def last_log_lines(self) -> str:
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - _MAX_SHOWN_LOG_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-_MAX_SHOWN_LOG_LINES:])


def spawn_program(program: Program) -> subprocess.Popen[bytes]:
    """Start a program in a new session, so that Ctrl-C stops only the supervisor.

    Call this function in the main thread, because Linux kills the started program when the *thread*
    that forked it ends. The process must have only one thread, because code between fork and exec
    is unsafe with several threads.
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
            **_build_options(program.run_as, program.keep_open),
        )
    if process.stdin is not None:
        # Ignore a broken pipe, because the exit code shows why the program ended early.
        with suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(program.stdin)
    return process


def run_to_end(
    argv: Sequence[str], run_as: tuple[int, int] | None, keep_open: tuple[int, ...]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - we compose the command lines ourselves
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=clean_environment(),
        **_build_options(run_as, keep_open),
    )


def _build_options(run_as: tuple[int, int] | None, keep_open: tuple[int, ...]) -> dict[str, Any]:
    end_with_supervisor = partial(exit_with_parent, os.getpid())
    options: dict[str, Any] = {
        "start_new_session": True,
        "pass_fds": keep_open,
        "preexec_fn": end_with_supervisor,
    }
    if run_as is not None:
        options |= {"user": run_as[0], "group": run_as[1], "extra_groups": []}
    return options


class ChildState(enum.StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    DONE = "done"
    # The program runs only once and has reported an error, which a restart would only repeat.
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass
class Child:
    program: Program
    process: subprocess.Popen[bytes] | None = None
    state: ChildState = ChildState.WAITING
    started_at: float = 0.0
    ready_at: float | None = None
    failures: int = 0
    restart_at: float = 0.0
    last_end: str = ""
    was_ready: bool = False

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    @property
    def startup_seconds(self) -> float:
        """Return how long the program took to start, or how long it has been starting."""
        return (self.ready_at or time.monotonic()) - self.started_at

    @property
    def is_usable(self) -> bool:
        return self.state in (ChildState.READY, ChildState.DONE)

    @property
    def is_due(self) -> bool:
        is_waiting = self.state in (ChildState.WAITING, ChildState.RESTARTING)
        return is_waiting and time.monotonic() >= self.restart_at

    def start(self) -> None:
        """Schedule a restart if the program fails to start."""
        self.started_at = time.monotonic()
        try:
            self.program.prepare()
            self.process = spawn_program(self.program)
        except (OSError, subprocess.SubprocessError, StackError) as error:
            self.last_end = f"could not be started: {error}"
            self._schedule_restart()
        else:
            self.state = ChildState.STARTING

    def check_ready(self) -> bool:
        """Mark a starting child as ready if its program is ready.

        Return whether the child has become ready.
        """
        if (
            self.state is not ChildState.STARTING
            or self.program.runs_once
            or not self.program.is_ready()
        ):
            return False
        if self.program.port and self.pid and not is_listening(self.pid, self.program.port):
            return False
        self.ready_at = time.monotonic()
        self.state = ChildState.READY
        self.was_ready = True
        return True

    def check_end(self) -> None:
        """Clean up after the child's process if the process has ended, and schedule a restart.

        A program that runs only once is restarted only after a signal has killed it.
        """
        if self.process is None or self.process.poll() is None:
            return
        code = self._clean_up()
        if not self.program.runs_once or code < 0:
            self._schedule_restart()
        elif code == 0:
            self.state = ChildState.DONE
            self.was_ready = True
            self.ready_at = time.monotonic()
        else:
            self.state = ChildState.FAILED

    def send_signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def check_stopped(self) -> bool:
        if self.process is not None:
            if self.process.poll() is None:
                return False
            self._clean_up()
        self.state = ChildState.STOPPED
        return True

    def _clean_up(self) -> int:
        """Return the exit code of an ended process, and kill the rest of its process group."""
        assert self.process is not None
        pid = self.process.pid
        code = self.process.returncode
        # Ignore ``PermissionError``, which macOS raises for a process group that contains only
        # zombies.
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
        self.failures += 1
        self.ready_at = None
        longest = _MAX_RESTART_DELAY if self.was_ready else timedelta.max
        self.restart_at = now + _DELAYS.choose(self.failures, longest).total_seconds()
        self.state = ChildState.RESTARTING


def describe_end(code: int) -> str:
    """Describe an exit code, for example "ended with code 3" or "was killed by SIGKILL"."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
