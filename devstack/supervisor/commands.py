"""What the commands `up`, `down`, `status` and `reset` do. Each returns its exit code."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from devstack.supervisor import supervision
from devstack.supervisor.display import Display, print_json, show_run
from devstack.supervisor.embedded.stack import services_lock
from devstack.supervisor.errors import StackError
from devstack.supervisor.home import run_file
from devstack.supervisor.home.home_folder import (
    MAX_STOP_SECONDS,
    Home,
    Lock,
    from_environment,
    supervisor_pid,
)

NOT_RUNNING = 3

# A process of its own: it runs for hours, and should not hold what other commands import.
_SUPERVISOR = [sys.executable, "-P", "-m", "devstack"]

_MAX_START_WAIT_SECONDS = 130.0
_MAX_STOP_WAIT_SECONDS = 60.0


def up(*, detach: bool, as_json: bool) -> int:
    """Start the stack; without `detach` this process becomes the supervisor."""
    if not detach:
        words = ["--json"] if as_json else []
        os.execv(sys.executable, [*_SUPERVISOR, *words])  # noqa: S606 - ourselves
    home = from_environment()
    try:
        home.create()
    except StackError as error:
        return _fail(error)
    if supervisor_pid(home) is not None:
        return _show_running(home, as_json=as_json)
    return _start_supervisor(home, as_json=as_json)


def supervise(*, as_json: bool) -> int:
    """Run the stack in this process until it is told to stop."""
    home = from_environment()
    try:
        supervision.run(home, Display(as_json=as_json))
    except supervision.AlreadyRunningError:
        return _show_running(home, as_json=as_json)
    except StackError as error:
        return _fail(error)
    return 0


def down(*, as_json: bool) -> int:
    home = from_environment()
    was_running = supervisor_pid(home) is not None
    try:
        _stop(home)
    except StackError as error:
        return _fail(error)
    if as_json:
        print_json({"was_running": was_running, "home": str(home.path)})
    else:
        _say("Stopped." if was_running else f"No stack is running on {home.path}.")
    return 0


def status(*, as_json: bool) -> int:
    home = from_environment()
    pid = supervisor_pid(home)
    run = run_file.read(home) if pid is not None else None
    if run is None:
        if as_json:
            word = "starting" if pid is not None else "stopped"
            print_json({"status": word, "home": str(home.path)})
        else:
            _say(f"The stack on {home.path} is {'not ready yet' if pid else 'not running'}.")
        return NOT_RUNNING
    processes = {name: _process(pid) for name, pid in run.pids.items()}
    if as_json:
        shown = {"api_url", "flower_url", "sandbox_url", "mailbox_url", "home"}
        urls = run.model_dump(mode="json", include=shown)
        print_json({"status": "running", **urls, "processes": processes})
    else:
        _show_status(run, processes)
    return 0


def reset(*, as_json: bool) -> int:
    home = from_environment()
    try:
        _stop(home)
        deleted = _delete_data(home) if home.path.exists() else []
    except StackError as error:
        return _fail(error)
    if as_json:
        print_json({"home": str(home.path), "deleted": [path.name for path in deleted]})
    else:
        _say(f"Deleted the stack's data in {home.path}.")
    return 0


def _start_supervisor(home: Home, *, as_json: bool) -> int:
    """Start the supervisor in the background and wait until it is ready or has ended."""
    log = home.log("supervisor")
    begin = log.stat().st_size if log.exists() else 0
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 - ourselves
            _SUPERVISOR,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "PRESSROOM_HOME": str(home.path)},
        )
    try:
        while process.poll() is None:
            run = run_file.read(home)
            if run is not None and run.pids.get("supervisor") == process.pid:
                _show(run, as_json=as_json)
                return 0
            time.sleep(0.05)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGTERM)
        process.wait()
        return 130
    said = log.read_bytes()[begin:].decode(errors="replace")
    sys.stderr.write("\n".join(said.splitlines()[-40:]) + "\n")
    return process.returncode or 1


def _show_running(home: Home, *, as_json: bool) -> int:
    """Show the run of the supervisor that holds the home, once it is ready."""
    deadline = time.monotonic() + _MAX_START_WAIT_SECONDS
    while supervisor_pid(home) is not None and time.monotonic() < deadline:
        run = run_file.read(home)
        if run is not None:
            if not as_json:
                _say(f"The stack on {home.path} is already running.")
            _show(run, as_json=as_json)
            return 0
        time.sleep(0.1)
    return _fail(StackError("Another start of the stack on this home did not get ready."))


def _show(run: run_file.Run, *, as_json: bool) -> None:
    if as_json:
        print_json(run.model_dump(mode="json"))
    else:
        show_run(Console(highlight=False), run)


def _stop(home: Home) -> None:
    """End the supervisor, if one runs, and wait until it has ended everything."""
    deadline = time.monotonic() + _MAX_STOP_WAIT_SECONDS
    asked: int | None = None
    while (pid := supervisor_pid(home)) is not None:
        if pid != asked:
            os.kill(pid, signal.SIGTERM)
            asked = pid
        if time.monotonic() > deadline:
            raise StackError(f"The supervisor (pid {pid}) has not ended; its logs: {home.logs}")
        time.sleep(0.05)


def _delete_data(home: Home) -> list[Path]:
    """Delete what the stack made, by name: the home may be a folder that holds other things too."""
    lock = Lock(home.supervisor_lock)
    if not lock.acquire(wait=MAX_STOP_SECONDS):
        raise StackError(f"The stack on {home.path} was started again.")
    try:
        with services_lock(home):
            ours = [path for path in home.everything if path.exists()]
            for path in ours:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    finally:
        lock.release()
    return ours


def _process(pid: int) -> dict[str, object]:
    try:
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            uptime = round(time.time() - process.create_time(), 1)
            return {"pid": pid, "state": "running", "uptime_seconds": uptime}
    except psutil.NoSuchProcess:
        pass
    return {"pid": pid, "state": "restarting", "uptime_seconds": None}


def _show_status(run: run_file.Run, processes: dict[str, dict[str, object]]) -> None:
    table = Table("process", "pid", "state", "uptime", box=None, padding=(0, 2))
    for name, each in processes.items():
        uptime = each["uptime_seconds"]
        lasted = f"{uptime:.0f} s" if isinstance(uptime, float) else ""
        table.add_row(name, str(each["pid"]), str(each["state"]), lasted)
    console = Console(highlight=False)
    console.print(table)
    for name, url in (
        ("API", run.api_url),
        ("Flower", run.flower_url),
        ("Sandbox", run.sandbox_url),
        ("Mailbox", run.mailbox_url),
    ):
        console.print(f"  {name:<8} {url}")


def _fail(error: StackError) -> int:
    Console(stderr=True, highlight=False).print(str(error), soft_wrap=True, markup=False)
    return error.exit_code


def _say(sentence: str) -> None:
    Console(highlight=False).print(sentence, soft_wrap=True, markup=False)
