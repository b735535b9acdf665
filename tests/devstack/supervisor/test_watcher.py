"""Nothing outlives a supervisor that was killed outright."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.devstack.supervisor.waiting import runs, until

# Starts a child that ignores the polite signal and has a child of its own, then waits.
SUPERVISOR = """
import os, sys, time
from pathlib import Path
from devstack.supervisor.processes.program import Program
from devstack.supervisor.processes.spawn import spawn
from devstack.supervisor.processes.watcher_client import Watcher

directory = Path(sys.argv[1])
code = '''
import os, signal, time
from pathlib import Path
if {deaf}: signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork() if {deaf} else 0
if child or not {deaf}: Path({mark!r}).write_text(str(child or os.getpid()))
time.sleep(600)
'''
watcher = Watcher()
pids = [watcher.pid]
for name, deaf in (("deaf", True), ("polite", False)):
    mark = str(directory / name)
    argv = (sys.executable, "-S", "-c", code.format(deaf=deaf, mark=mark))
    pids.append(spawn(Program(name, argv, directory / "log", dict(os.environ)), watcher).pid)
while not all((directory / name).exists() and (directory / name).read_text()
              for name in ("deaf", "polite")):
    time.sleep(0.02)
pids.append(int((directory / "deaf").read_text()))
print(*pids, flush=True)
time.sleep(600)
"""


@pytest.fixture
def supervisor(tmp_path: Path) -> tuple[subprocess.Popen[str], list[int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, [int(word) for word in process.stdout.readline().split()]


@pytest.mark.slow
def test_a_killed_supervisor_leaves_no_process_not_even_grandchildren(
    supervisor: tuple[subprocess.Popen[str], list[int]],
) -> None:
    process, pids = supervisor
    assert len(pids) == 4
    assert all(map(runs, pids))
    process.kill()
    process.wait()
    until(lambda: not any(map(runs, pids)))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has death signals")
def test_children_end_even_when_the_watcher_was_killed_first(
    supervisor: tuple[subprocess.Popen[str], list[int]],
) -> None:
    process, (watcher, deaf, polite, grandchild) = supervisor
    try:
        os.kill(watcher, signal.SIGKILL)
        process.kill()
        process.wait()
        until(lambda: not runs(polite))
    finally:
        os.kill(deaf, signal.SIGKILL)
        os.kill(grandchild, signal.SIGKILL)
