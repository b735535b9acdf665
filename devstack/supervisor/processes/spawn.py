"""Starting a process that never outlives the supervisor."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from devstack.supervisor.home.environment import cleaned
from devstack.supervisor.processes.program import Program
from devstack.supervisor.processes.watcher_client import Watcher

_PR_SET_PDEATHSIG = 1

# Looked up before any fork: a child between fork and exec must do as little as possible.
_prctl: Callable[..., int] | None = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def _tie(stop_signal: int, watcher: Watcher | None = None) -> Callable[[], None]:
    """What a child does between fork and exec: ask to be ended when its parent dies."""
    parent = os.getpid()

    def tie_to_parent() -> None:
        if watcher is not None:
            # The child enters itself, so that at no instant it runs unwatched.
            watcher.announce_self(stop_signal)
        if _prctl is not None and _prctl(_PR_SET_PDEATHSIG, stop_signal, 0, 0, 0) != 0:
            os._exit(127)
        if os.getppid() != parent:
            os._exit(127)

    return tie_to_parent


def _options(run_as: tuple[int, int] | None, keep_open: tuple[int, ...]) -> dict[str, Any]:
    options: dict[str, Any] = {"start_new_session": True, "pass_fds": keep_open}
    if run_as is not None:
        options |= {"user": run_as[0], "group": run_as[1], "extra_groups": []}
    return options


def spawn(program: Program, watcher: Watcher) -> subprocess.Popen[bytes]:
    """Start the program in a session of its own: a terminal's Ctrl-C is the supervisor's alone.

    Linux sends the death signal when the *thread* that forked ends, so this must be called
    from the main thread; and before-exec code is safe only while that is the only one.
    """
    program.rotate_log()
    stop_signal = int(program.stop_signal)
    with program.log.open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - we compose the command lines ourselves
            program.argv,
            stdin=subprocess.PIPE if program.stdin else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(program.environment),
            preexec_fn=_tie(stop_signal, watcher),  # noqa: PLW1509
            cwd=program.directory,
            **_options(program.run_as, program.keep_open),
        )
    watcher.remember(process.pid, stop_signal)
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
        preexec_fn=_tie(signal.SIGKILL),
        **_options(run_as, keep_open),
    )
