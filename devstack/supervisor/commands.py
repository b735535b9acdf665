"""Implements the commands ``pressroom up``, ``down``, ``status`` and ``reset``."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from devstack.supervisor import home_folder, supervision
from devstack.supervisor.display import Display, print_json
from devstack.supervisor.embedded.stack import lock_services
from devstack.supervisor.home_folder import (
    Home,
    Lock,
    Run,
    StackError,
    find_home,
    find_supervisor_pid,
)

NOT_RUNNING = 3
# The exit code of a detached supervisor if another supervisor is running in its home folder.
_ALREADY_RUNNING = 4

# The supervisor runs for hours, so it runs in a separate process without the modules that only
# commands need.
_SUPERVISOR_COMMAND = [sys.executable, "-P", "-m", "devstack"]

_MAX_STOP_WAIT_SECONDS = 60.0
_MAX_LINK_WAIT_SECONDS = 30.0


@contextmanager
def _report_errors() -> Iterator[None]:
    try:
        yield
    except StackError as error:
        Console(stderr=True, highlight=False).print(str(error), soft_wrap=True, markup=False)
        sys.exit(error.exit_code)


@_report_errors()
def start_stack(*, detach: bool, as_json: bool) -> int:
    """Start the stack. Unless ``detach`` is true, the current process becomes the supervisor."""
    if not detach:
        words = ["--json"] if as_json else []
        os.execv(sys.executable, [*_SUPERVISOR_COMMAND, *words])  # noqa: S606 - ourselves
    home = find_home()
    home.create()
    if find_supervisor_pid(home) is not None:
        return _show_running(home, as_json=as_json)
    return _start_supervisor(home, as_json=as_json)


@_report_errors()
def run_supervisor(*, as_json: bool, is_detached: bool) -> int:
    """Run the stack in this process. A detached stack prints no logins, because its output is
    stored in a log.
    """
    home = find_home()
    try:
        supervision.run_stack(home, Display(as_json=as_json, hides_stack=is_detached))
    except supervision.AlreadyRunningError:
        return _ALREADY_RUNNING if is_detached else _show_running(home, as_json=as_json)
    return 0


@_report_errors()
def stop_stack(*, as_json: bool) -> int:
    home = find_home()
    was_running = _stop(home)
    record = {"was_running": was_running, "home": str(home.path)}
    sentence = "Stopped." if was_running else f"No stack is running in {home.path}."
    return _print_result(record, sentence, as_json=as_json)


def show_status(*, as_json: bool, as_shell: bool) -> int:
    home = find_home()
    pid = find_supervisor_pid(home)
    run = home_folder.read_run(home) if pid is not None else None
    if run is None:
        word, state = ("starting", "not ready yet") if pid else ("stopped", "not running")
        record = {"status": word, "home": str(home.path)}
        sentence = f"The stack in {home.path} is {state}."
        if as_shell:
            # The shell evaluates standard output.
            sys.stderr.write(f"{sentence}\n")
            return NOT_RUNNING
        _print_result(record, sentence, as_json=as_json)
        return NOT_RUNNING
    if as_shell:
        variables = {"API": run.api_url, "KEY": run.demo.api_key, "SANDBOX": run.sandbox_url}
        words = (f"{name}={shlex.quote(value)}" for name, value in variables.items())
        sys.stdout.write(f"export {' '.join(words)}\n")
        return 0
    processes = {name: _describe_process(pid) for name, pid in run.pids.items()}
    if as_json:
        url_names = {"api_url", "flower_url", "sandbox_url", "mailbox_url", "status_url", "home"}
        urls = run.model_dump(mode="json", include=url_names)
        print_json({"status": "running", **urls, "processes": processes})
        return 0
    table = Table("process", "pid", "state", "uptime", box=None, padding=(0, 2))
    for name, (pid, state, uptime) in ((name, each.values()) for name, each in processes.items()):
        table.add_row(name, str(pid), state, "" if uptime is None else f"{uptime:.0f} s")
    console = Console(highlight=False)
    console.print(table)
    console.print(f"  Console  {run.api_url}/console")
    for name in ("API", "Flower", "Sandbox", "Mailbox"):
        console.print(f"  {name:<8} {getattr(run, f'{name.lower()}_url')}")
    console.print("`pressroom up` shows the login.")
    return 0


@_report_errors()
def reset_stack(*, as_json: bool) -> int:
    """Delete only files of the stack, because the home folder may contain other files."""
    home = find_home()
    _stop(home)
    deleted: list[str] = []
    if home.path.exists():
        lock = Lock(home.supervisor_lock)
        if not lock.acquire(wait_seconds=home_folder.MAX_STOP_SECONDS):
            raise StackError(f"The stack in {home.path} was started again.")
        with closing(lock), lock_services(home):
            for path in filter(Path.exists, home.all_paths):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                deleted.append(path.name)
    record = {"home": str(home.path), "deleted": deleted}
    return _print_result(record, f"Deleted the stack's data in {home.path}.", as_json=as_json)


def _start_supervisor(home: Home, *, as_json: bool) -> int:
    """Start the supervisor in the background, and wait until the stack is ready or has failed."""
    log = home.log("supervisor")
    begin = log.stat().st_size if log.exists() else 0
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 - ourselves
            [*_SUPERVISOR_COMMAND, "--detached"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "PRESSROOM_HOME": str(home.path)},
        )
    try:
        while process.poll() is None:
            run = home_folder.read_run(home)
            if run is not None and run.pids.get("supervisor") == process.pid:
                Display(as_json=as_json).show_stack(run)
                return 0
            time.sleep(0.05)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGTERM)
        process.wait()
        return 130
    if process.returncode == _ALREADY_RUNNING:
        # Two commands started a supervisor at the same time.
        return _show_running(home, as_json=as_json)
    output_text = log.read_bytes()[begin:].decode(errors="replace")
    sys.stderr.write("\n".join(output_text.splitlines()[-40:]) + "\n")
    return process.returncode or 1


def _show_running(home: Home, *, as_json: bool) -> int:
    while find_supervisor_pid(home) is not None:
        run = home_folder.read_run(home)
        if run is not None:
            if not as_json:
                _print_result({}, f"The stack in {home.path} is already running.", as_json=False)
            run.demo.login_link = _create_login_link(run)
            Display(as_json=as_json).show_stack(run)
            return 0
        time.sleep(0.1)
    raise StackError(
        "Another process is starting the stack in this folder, but the stack did not become ready."
    )


def _create_login_link(run: Run) -> str | None:
    """Return ``None`` after a message if the stack's database isn't available."""
    # Another process creates the link, because a hanging database can block a process forever.
    command = [sys.executable, "-P", "-m", "devstack.supervisor.prepare", "--login-link"]
    with suppress(subprocess.TimeoutExpired):
        completed = subprocess.run(  # noqa: S603 - ourselves
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_MAX_LINK_WAIT_SECONDS,
            env={**run.settings, **os.environ},
        )
        if completed.returncode == 0:
            return completed.stdout.strip()
    sys.stderr.write(
        "No login link was created. The database may be unavailable: `pressroom status` shows all "
        f"processes, and their logs are in {Home(run.home).logs}.\n"
    )
    return None


def _stop(home: Home) -> bool:
    """Return whether a supervisor was running."""
    deadline = time.monotonic() + _MAX_STOP_WAIT_SECONDS
    signalled_pid: int | None = None
    while (pid := find_supervisor_pid(home)) is not None:
        if pid != signalled_pid:
            os.kill(pid, signal.SIGTERM)
            signalled_pid = pid
        if time.monotonic() > deadline:
            raise StackError(
                f"The supervisor (pid {pid}) has not stopped. See its logs in {home.logs}."
            )
        time.sleep(0.05)
    return signalled_pid is not None


def _describe_process(pid: int) -> dict[str, Any]:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            uptime = round(time.time() - process.create_time(), 1)
            return {"pid": pid, "state": "running", "uptime_seconds": uptime}
    return {"pid": pid, "state": "restarting", "uptime_seconds": None}


def _print_result(record: Mapping[str, object], sentence: str, *, as_json: bool) -> int:
    if as_json:
        print_json(record)
    else:
        Console(highlight=False).print(sentence, soft_wrap=True, markup=False)
    return 0
