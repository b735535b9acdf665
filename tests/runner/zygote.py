"""Fork programs of ours from a process that has imported them: an API takes a tenth of its start.

The process is named after the one from which Android forks its applications. It has no thread, no
connection and no setting. A forked program gets its arguments, its environment and its log, and is
a child of the process that asked for it, which waits for it and ends it like any other.
"""

import atexit
import ctypes
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from core.process.garbage_collection import freeze_before_fork
from devstack.supervisor.child import Program
from devstack.supervisor.environment import clean_environment

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
# Variables in which a program may differ from the tests: they are read when it runs. Any other
# may be read by an import, which the process did already.
_READ_LATE = ("PRESSROOM_", "PROBE_", "OTEL_", "PYTEST_CURRENT_TEST")
# The library of metrics reads this one when it is imported.
_READ_EARLY = "PRESSROOM_WORKER_METRICS_ADDRESS"


class Forked(subprocess.Popen[bytes]):
    """A child of this process that the zygote forked."""

    def __init__(self, pid: int, argv: tuple[str, ...]) -> None:
        self.pid, self.args, self.returncode = pid, argv, None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (timeout or 0)
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)


class Zygote:
    """The process to fork from, which starts with the first program that it forks."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = clean_environment()

    def fork(self, program: Program, module: str, words: tuple[str, ...]) -> Forked | None:
        """Fork the program, unless it needs a start of its own."""
        return self.spawn(program, module, words) if self.can_fork(program) else None

    def can_fork(self, program: Program) -> bool:
        """Return whether the program reads what is its own after it was imported."""
        environment, known = program.environment, self._environment
        differs = {
            name
            for name in {*environment, *known}
            if environment.get(name) != known.get(name) and not name.startswith(_READ_LATE)
        }
        return not differs and _READ_EARLY not in environment and program.directory is None

    def spawn(self, program: Program, module: str, words: tuple[str, ...]) -> Forked:
        """Run `python -m module words…` as the development stack's `spawn` does."""
        program.rotate_log()
        process = self._started()
        assert process.stdin
        assert process.stdout
        asked = {
            "module": module,
            "words": words,
            "environment": dict(program.environment),
            "log": str(program.log),
            "directory": str(Path.cwd()),
        }
        # The zygote's child ends at once and leaves its own child to this process.
        _control(_PR_SET_CHILD_SUBREAPER, 1)
        try:
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            process.stdin.flush()
            return Forked(int(process.stdout.readline()), program.argv)
        finally:
            # Other programs' orphans are nothing to it.
            _control(_PR_SET_CHILD_SUBREAPER, 0)

    def pytest_unconfigure(self) -> None:
        """End the zygote process. Pytest calls this method after the last test."""
        if self._process is not None:
            self._process.communicate()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.runner.zygote"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Celery reads this variable when it is imported (cli/processes.py).
                env={**self._environment, "REMAP_SIGTERM": "SIGQUIT"},
                cwd=Path(__file__).parents[2],
                start_new_session=True,
            )
        return self._process


class _Ending:
    """Ends the process at once, after all other work at its exit.

    Taking the imported modules apart would take longer than the start did.
    """

    code = 0

    def __call__(self) -> None:
        sys.stdout.flush()
        os._exit(self.code)


def _control(option: int, value: int) -> None:
    assert ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0


def _next_program() -> dict[str, Any]:
    """Fork a program for each request until the tests end; return the request in each program."""
    tests = os.getppid()
    for line in sys.stdin.buffer:
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            # Now the tests are its parent.
            os.write(1, b"\n")
            continue
        program = os.fork()
        if program:
            os.write(1, b"%d" % program)
            os._exit(0)
        for _ in range(5_000):
            if os.getppid() == tests:
                break
            time.sleep(0.001)
        else:
            sys.exit(1)
        _control(_PR_SET_PDEATHSIG, signal.SIGTERM)
        told: dict[str, Any] = json.loads(line)
        return told
    sys.exit()


def _become(told: dict[str, Any], ending: _Ending) -> None:
    os.setsid()
    for path, mode, numbers in (
        (os.devnull, os.O_RDONLY, (0,)),
        (told["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, (1, 2)),
    ):
        opened = os.open(path, mode, 0o644)
        for number in numbers:
            os.dup2(opened, number)
        os.close(opened)
    os.chdir(told["directory"])
    os.environ.clear()
    os.environ.update(told["environment"])
    sys.argv[1:] = told["words"]
    ending.code = 1
    try:
        runpy.run_module(told["module"], run_name="__main__", alter_sys=True)
        ending.code = 0
    except SystemExit as ended:
        ending.code = ended.code if isinstance(ended.code, int) else bool(ended.code)
        raise


def _import_all() -> None:
    modules = (
        "api.app",
        "api.client_connections",
        "celery.apps.worker",
        "celery.bin.worker",
        "celery.concurrency.prefork",
        "celery.concurrency.thread",
        # Not cli.main, which a program runs as __main__.
        "cli.connection",
        "cli.processes",
        "devstack.sandbox.app",
        "tests.support.sandbox.providers",
        "uvicorn.lifespan.on",
        "uvicorn.loops.auto",
        "workers.main",
    )
    for module in modules:
        import_module(module)
    freeze_before_fork()


if __name__ == "__main__":
    # Before the imports: the last to be called.
    at_exit = _Ending()
    atexit.register(at_exit)
    _import_all()
    _become(_next_program(), at_exit)
