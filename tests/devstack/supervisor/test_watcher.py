"""The watcher ends what is left of a stack, and nobody else's processes."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devstack.supervisor.processes.program import Program
from devstack.supervisor.processes.spawn import spawn
from devstack.supervisor.processes.watcher_client import Watcher
from tests.devstack.supervisor.waiting import until

_LAST_NUMBER = Path("/proc/sys/kernel/ns_last_pid")
_SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Watcher], subprocess.Popen[bytes]]]:
    """Starts a program that sleeps."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(watcher: Watcher) -> subprocess.Popen[bytes]:
        program = Program("sleeper", (sys.executable, "-c", _SLEEP), tmp_path / "log", {})
        started.append(spawn(program, watcher))
        return started[-1]

    yield begin
    for each in started:
        each.kill()
        each.wait()


def test_what_is_left_ends_with_the_watcher(
    start: Callable[[Watcher], subprocess.Popen[bytes]],
) -> None:
    watcher = Watcher()
    left = start(watcher)
    watcher.close()
    until(lambda: left.poll() is not None)


def test_a_process_that_got_the_number_of_an_ended_one_lives(
    start: Callable[[Watcher], subprocess.Popen[bytes]],
) -> None:
    living = Watcher()
    for _ in range(500):
        # Any process may get the number first and keep it, so each try ends another one.
        ending = Watcher()
        ended = start(ending)
        ended.kill()
        ended.wait()
        try:
            _LAST_NUMBER.write_text(str(ended.pid - 1))
        except OSError:
            pytest.skip("the system lets nobody choose the number of a process")
        other = start(living)
        if other.pid == ended.pid:
            break
        other.kill()
        other.wait()
        ending.close()
    assert other.pid == ended.pid
    ending.close()
    assert other.poll() is None
    living.close()
