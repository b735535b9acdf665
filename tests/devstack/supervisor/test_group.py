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
from devstack.supervisor.child import Program
from devstack.supervisor.home_folder import StackError
from devstack.supervisor.supervision import Group
from tests.support.stack.waiting import runs

# Programs start, fail and are waited for.
pytestmark = pytest.mark.slow


SLEEP = "import time; time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def program(directory: Path, name: str, code: str, **rest: Any) -> Program:
    return Program(
        name=name,
        argv=(sys.executable, "-S", "-c", code),
        log=directory / f"{name}.log",
        environment=dict(os.environ),
        **rest,
    )


def until_ticked(group: Group, condition: Callable[[], bool]) -> None:
    def holds() -> bool:
        group.tick()
        return condition()

    eventually(holds)


def test_supervised_program_is_not_ready_while_another_program_has_its_port(tmp_path: Path) -> None:
    listen = "import socket; held = socket.create_server(('127.0.0.1', {port}))"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        child = program(tmp_path, "late", SLEEP, is_ready=lambda: True, port=port)
        group = Group([child], report=lambda _: None)
        until_ticked(group, lambda: "late" in group.pids)
        for _ in range(20):
            group.tick()
            assert not group.is_ready
        group.stop([["late"]])
    code = f"{listen.format(port=port)}; {SLEEP}"
    group = Group([program(tmp_path, "own", code, port=port)], report=lambda _: None)
    await_ready(group)
    group.stop([["own"]])


def test_supervisor_restarts_crashing_program_with_exponential_backoff(tmp_path: Path) -> None:
    said: list[str] = []
    group = Group([program(tmp_path, "crash", "raise SystemExit(7)")], said.append)
    starts, looked = [0.0], 0.0

    def third_end() -> bool:
        nonlocal looked
        looked = time.monotonic()
        group.tick()
        if group["crash"].started_at != starts[-1]:
            starts.append(group["crash"].started_at)
        return len(said) >= 3 and group["crash"].failures == 3

    eventually(third_end)
    assert starts[2] - starts[1] >= 0.5
    assert starts[3] - starts[2] >= 1.0
    assert looked <= group["crash"].restart_at - 2.0 <= time.monotonic()
    assert "ended with code 7" in said[0]


def test_error_for_failed_program_start_contains_the_end_of_its_log(tmp_path: Path) -> None:
    broken = program(
        tmp_path, "broken", "raise SystemExit('no such table')", is_ready=lambda: False
    )
    group = Group([broken], lambda _: None)
    with pytest.raises(StackError, match=r"(?s)broken does not start.*no such table"):
        await_ready(group)


def test_supervisor_kills_the_children_of_a_killed_program(tmp_path: Path) -> None:
    fork = f"import os, signal\nif os.fork() == 0: signal.signal(15, signal.SIG_IGN)\n{SLEEP}"
    pool = program(tmp_path, "pool", fork)
    group = Group([pool], lambda _: None)
    await_ready(group)
    leader = group.pids["pool"]
    eventually(lambda: len(members(leader)) == 2)
    (left,) = members(leader) - {leader}
    os.kill(leader, signal.SIGKILL)
    until_ticked(group, lambda: not runs(left))
    group.stop([["pool"]])


def members(leader: int) -> set[int]:
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(entry.name)) == leader:
                found.add(int(entry.name))
        except ProcessLookupError:
            continue
    return found


def test_supervised_program_starts_only_after_its_dependencies(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"import time, pathlib; time.sleep(0.1); pathlib.Path({str(mark)!r}).touch(); {SLEEP}"
    first = program(tmp_path, "first", code, is_ready=mark.exists)
    needing = f"import pathlib; assert pathlib.Path({str(mark)!r}).exists(); {SLEEP}"
    second = program(tmp_path, "second", needing, needs=frozenset({"first"}))
    group = Group([second, first], lambda _: None)
    await_ready(group)
    assert group["second"].started_at >= (group["first"].ready_at or 0.0)
    group.stop([["second", "first"]])
    assert not group.pids


def test_program_that_ignores_the_stop_signal_is_killed_after_its_grace_period(
    tmp_path: Path,
) -> None:
    mark = tmp_path / "mark"
    code = f"{DEAF}; import pathlib; pathlib.Path({str(mark)!r}).touch(); {SLEEP}"
    group = Group([program(tmp_path, "deaf", code, is_ready=mark.exists, grace_seconds=0.3)], print)
    await_ready(group)
    pid, began = group.pids["deaf"], time.monotonic()
    group.stop([["deaf"]])
    assert time.monotonic() - began >= 0.3
    assert not runs(pid)


def test_supervisor_stops_programs_stage_by_stage(tmp_path: Path) -> None:
    order = tmp_path / "order"
    order.touch()

    def noting(name: str, delay: float) -> Program:
        mark = tmp_path / f"{name}.mark"
        code = (
            "import signal, sys, time, pathlib\n"
            "def end(*_):\n"
            f"    time.sleep({delay})\n"
            f"    open({str(order)!r}, 'a').write('{name} ')\n"
            "    sys.exit()\n"
            "signal.signal(signal.SIGTERM, end)\n"
            f"pathlib.Path({str(mark)!r}).touch()\n"
            "while True: time.sleep(60)\n"
        )
        return program(tmp_path, name, code, is_ready=mark.exists)

    group = Group([noting("store", 0.0), noting("api", 0.2)], print)
    await_ready(group)
    group.stop([["api"], ["store"]])
    assert order.read_text() == "api store "
