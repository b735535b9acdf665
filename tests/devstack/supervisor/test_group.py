"""Tests that the supervisor starts, restarts and stops a group of programs."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devstack.harness.embedded_services import await_ready
from devstack.harness.polling import eventually
from devstack.supervisor import start_progress
from devstack.supervisor.child import Program
from devstack.supervisor.home_folder import StackError
from devstack.supervisor.start_progress import StartProgress
from devstack.supervisor.supervision import Group
from tests.support.stack.waiting import is_running

# The tests are slow, because they start programs, and wait for the programs' output or end.
pytestmark = pytest.mark.slow


SLEEP = "import time; time.sleep(600)"
IGNORE_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def build_program(directory: Path, name: str, code: str, **options: Any) -> Program:
    return Program(
        name=name,
        argv=(sys.executable, "-S", "-c", code),
        log=directory / f"{name}.log",
        environment=dict(os.environ),
        **options,
    )


def tick_until(group: Group, condition: Callable[[], bool]) -> None:
    def holds() -> bool:
        group.tick()
        return condition()

    eventually(holds)


def test_supervised_program_is_not_ready_while_another_program_has_its_port(tmp_path: Path) -> None:
    listen = "import socket; held = socket.create_server(('127.0.0.1', {port}))"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        child = build_program(tmp_path, "late", SLEEP, is_ready=lambda: True, port=port)
        group = Group([child], report=lambda _: None)
        tick_until(group, lambda: "late" in group.pids)
        for _ in range(20):
            group.tick()
            assert not group.is_ready
        group.stop([["late"]])
    code = f"{listen.format(port=port)}; {SLEEP}"
    group = Group([build_program(tmp_path, "own", code, port=port)], report=lambda _: None)
    await_ready(group)
    group.stop([["own"]])


def test_supervisor_restarts_crashing_program_with_exponential_backoff(tmp_path: Path) -> None:
    messages: list[str] = []
    group = Group([build_program(tmp_path, "crash", "raise SystemExit(7)")], messages.append)
    starts = [0.0]
    ticked_at = 0.0

    def has_ended_three_times() -> bool:
        nonlocal ticked_at
        ticked_at = time.monotonic()
        group.tick()
        if group["crash"].started_at != starts[-1]:
            starts.append(group["crash"].started_at)
        return len(messages) >= 3 and group["crash"].failures == 3

    eventually(has_ended_three_times)
    assert starts[2] - starts[1] >= 0.5
    assert starts[3] - starts[2] >= 1.0
    assert ticked_at <= group["crash"].restart_at - 2.0 <= time.monotonic()
    assert "ended with code 7" in messages[0]


def test_error_for_failed_program_start_contains_the_end_of_its_log(tmp_path: Path) -> None:
    broken = build_program(
        tmp_path, "broken", "raise SystemExit('no such table')", is_ready=lambda: False
    )
    group = Group([broken], lambda _: None)
    with pytest.raises(StackError, match=r"(?s)broken does not start.*no such table"):
        await_ready(group)


def test_supervisor_kills_the_children_of_a_killed_program(tmp_path: Path) -> None:
    fork = f"import os, signal\nif os.fork() == 0: signal.signal(15, signal.SIG_IGN)\n{SLEEP}"
    pool = build_program(tmp_path, "pool", fork)
    group = Group([pool], lambda _: None)
    await_ready(group)
    leader = group.pids["pool"]
    eventually(lambda: len(find_group_members(leader)) == 2)
    (child,) = find_group_members(leader) - {leader}
    os.kill(leader, signal.SIGKILL)
    tick_until(group, lambda: not is_running(child))
    group.stop([["pool"]])


def find_group_members(leader: int) -> set[int]:
    """Return the ids of the processes in the process group of a leader."""
    pids = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(entry.name)) == leader:
                pids.add(int(entry.name))
        except ProcessLookupError:
            continue
    return pids


def test_supervised_program_starts_only_after_its_dependencies(tmp_path: Path) -> None:
    ready_file = tmp_path / "mark"
    code = (
        f"import time, pathlib; time.sleep(0.1); pathlib.Path({str(ready_file)!r}).touch(); {SLEEP}"
    )
    first = build_program(tmp_path, "first", code, is_ready=ready_file.exists)
    dependent_code = f"import pathlib; assert pathlib.Path({str(ready_file)!r}).exists(); {SLEEP}"
    second = build_program(tmp_path, "second", dependent_code, needs=frozenset({"first"}))
    group = Group([second, first], lambda _: None)
    await_ready(group)
    assert group["second"].started_at >= (group["first"].ready_at or 0.0)
    group.stop([["second", "first"]])
    assert not group.pids


def test_program_that_ignores_the_stop_signal_is_killed_after_its_grace_period(
    tmp_path: Path,
) -> None:
    ready_file = tmp_path / "mark"
    code = f"{IGNORE_SIGTERM}; import pathlib; pathlib.Path({str(ready_file)!r}).touch(); {SLEEP}"
    group = Group(
        [build_program(tmp_path, "deaf", code, is_ready=ready_file.exists, grace_seconds=0.3)],
        print,
    )
    await_ready(group)
    pid = group.pids["deaf"]
    began_at = time.monotonic()
    group.stop([["deaf"]])
    assert time.monotonic() - began_at >= 0.3
    assert not is_running(pid)


def test_supervisor_stops_programs_stage_by_stage(tmp_path: Path) -> None:
    order = tmp_path / "order"
    order.touch()

    def build_recording_program(name: str, delay: float) -> Program:
        """Build a program that writes its name to the file ``order`` when the program ends."""
        ready_file = tmp_path / f"{name}.mark"
        code = (
            "import signal, sys, time, pathlib\n"
            "def end(*_):\n"
            f"    time.sleep({delay})\n"
            f"    open({str(order)!r}, 'a').write('{name} ')\n"
            "    sys.exit()\n"
            "signal.signal(signal.SIGTERM, end)\n"
            f"pathlib.Path({str(ready_file)!r}).touch()\n"
            "while True: time.sleep(60)\n"
        )
        return build_program(tmp_path, name, code, is_ready=ready_file.exists)

    group = Group(
        [build_recording_program("store", 0.0), build_recording_program("api", 0.2)], print
    )
    await_ready(group)
    group.stop([["api"], ["store"]])
    assert order.read_text() == "api store "


def test_start_is_given_up_if_no_unready_program_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_progress, "MAX_STALLED_SECONDS", 1.0)
    stuck = build_program(tmp_path, "stuck", SLEEP, is_ready=lambda: False)
    ready = build_program(tmp_path, "ready", "while True: pass")
    group = Group([stuck, ready], print)
    progress = StartProgress(group.children, print)

    def check_progress() -> None:
        group.tick()
        progress.check()

    try:
        with pytest.raises(StackError, match=r": stuck\. These programs used no processor time"):
            eventually(check_progress)
    finally:
        group.stop([["stuck", "ready"]])
