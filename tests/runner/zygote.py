"""Forks Pressroom's programs from the zygote, a process that has already imported their modules.

A forked API starts ten times as fast as an API that must import its modules. The zygote process is
named after the process from which Android forks its applications. The zygote process has no
threads, no connections and no settings. A forked program gets its own arguments, environment and
log. The test process becomes the parent of each forked program, so that the test process can wait
for the program and end it.
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

# Options of prctl(2).
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# The prefixes of environment variables that programs read only after they have imported all
# modules. A program can be forked from the zygote process only if all variables without these
# prefixes have the same values in both, because the imported modules may have read these values.
_VARIABLES_READ_AFTER_IMPORT = ("PRESSROOM_", "PROBE_", "OTEL_", "PYTEST_CURRENT_TEST")
# If the variable ``PRESSROOM_WORKER_METRICS_ADDRESS`` is set, a worker must choose a metrics folder
# before it imports the metrics library. The worker therefore can't be forked from the zygote
# process, which has already imported the metrics library.
_VARIABLE_READ_AT_IMPORT = "PRESSROOM_WORKER_METRICS_ADDRESS"


class Forked(subprocess.Popen[bytes]):
    """A program that the zygote process has forked, and that is a child of the test process."""

    def __init__(self, pid: int, argv: tuple[str, ...]) -> None:
        self.pid = pid
        self.args = argv
        self.returncode = None

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
    """Controls the zygote process, which starts when a test first forks a program."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = clean_environment()

    def pytest_collection_finish(self) -> None:
        """Raise ``RuntimeError`` if the import of a test module has changed the environment.

        All programs that the zygote process forks have the same environment variables. A program
        with different variables must import all modules itself, so the tests take longer.
        """
        changed = {name for name, _ in clean_environment().items() ^ self._environment.items()}
        if changed:
            raise RuntimeError(
                f"Importing the tests changed the environment variables {sorted(changed)}. Set "
                "these variables in a fixture or in the program that needs them."
            )

    def fork(self, program: Program, module: str, words: tuple[str, ...]) -> Forked | None:
        return self.spawn(program, module, words) if self.can_fork(program) else None

    def can_fork(self, program: Program) -> bool:
        """Return whether the zygote process can fork the program.

        The program's environment may differ from the zygote process's environment only in variables
        that programs read after their imports.
        """
        environment = program.environment
        known = self._environment
        differs = {
            name
            for name in {*environment, *known}
            if environment.get(name) != known.get(name)
            and not name.startswith(_VARIABLES_READ_AFTER_IMPORT)
        }
        return (
            not differs
            and _VARIABLE_READ_AT_IMPORT not in environment
            and program.directory is None
        )

    def spawn(self, program: Program, module: str, words: tuple[str, ...]) -> Forked:
        program.rotate_log()
        process = self._start()
        assert process.stdin
        assert process.stdout
        request = {
            "module": module,
            "words": words,
            "environment": dict(program.environment),
            "log": str(program.log),
            "directory": str(Path.cwd()),
        }
        # The zygote process forks a child, which forks the program and exits. When the child exits,
        # this test process becomes the parent of the program, because the test process is a
        # subreaper.
        _control(_PR_SET_CHILD_SUBREAPER, 1)
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            return Forked(int(process.stdout.readline()), program.argv)
        finally:
            # Stop being a subreaper, so that this process doesn't become the parent of other
            # orphaned processes.
            _control(_PR_SET_CHILD_SUBREAPER, 0)

    def pytest_unconfigure(self) -> None:
        """End the zygote process. Pytest calls this method after the last test."""
        if self._process is not None:
            self._process.communicate()

    def _start(self) -> subprocess.Popen[bytes]:
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


class _FastExit:
    """Ends the process after all other exit handlers, without Python's cleanup of the modules.

    Python's cleanup of the imported modules would take longer than the start of the program.
    """

    code = 0

    def __call__(self) -> None:
        sys.stdout.flush()
        os._exit(self.code)


def _control(option: int, value: int) -> None:
    assert ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0


def _await_program() -> dict[str, Any]:
    """Fork a program for each request until the tests end; return the request in each program."""
    tests_pid = os.getppid()
    for line in sys.stdin.buffer:
        intermediate_pid = os.fork()
        if intermediate_pid:
            os.waitpid(intermediate_pid, 0)
            # The child process has exited, so the test process is now the parent of the program.
            # The child has written the program's pid without a line break. After the line break,
            # the ``readline`` of the test process returns the pid.
            os.write(1, b"\n")
            continue
        program_pid = os.fork()
        if program_pid:
            os.write(1, b"%d" % program_pid)
            os._exit(0)
        for _ in range(5_000):
            if os.getppid() == tests_pid:
                break
            time.sleep(0.001)
        else:
            sys.exit(1)
        _control(_PR_SET_PDEATHSIG, signal.SIGTERM)
        request: dict[str, Any] = json.loads(line)
        return request
    sys.exit()


def _run_program(request: dict[str, Any], fast_exit: _FastExit) -> None:
    """Turn this process into the requested program, and run it to its end."""
    os.setsid()
    for path, mode, descriptors in (
        (os.devnull, os.O_RDONLY, (0,)),
        (request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, (1, 2)),
    ):
        opened = os.open(path, mode, 0o644)
        for descriptor in descriptors:
            os.dup2(opened, descriptor)
        os.close(opened)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[1:] = request["words"]
    fast_exit.code = 1
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        fast_exit.code = 0
    except SystemExit as ended:
        fast_exit.code = ended.code if isinstance(ended.code, int) else bool(ended.code)
        raise


def _import_all() -> None:
    modules = (
        "api.app",
        "api.client_connections",
        "celery.apps.worker",
        "celery.bin.worker",
        "celery.concurrency.prefork",
        "celery.concurrency.thread",
        # Don't import cli.main here, because forked processes run that module as __main__.
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
    # Register this handler before the imports, so that it runs after all other exit handlers.
    main_fast_exit = _FastExit()
    atexit.register(main_fast_exit)
    _import_all()
    _run_program(_await_program(), main_fast_exit)
