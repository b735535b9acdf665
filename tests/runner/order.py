"""The order in which several pytest processes run the test files.

A test file is never divided between several pytest processes.
"""

import json
import os
import resource
import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from itertools import chain, filterfalse, zip_longest
from pathlib import Path
from statistics import median
from typing import Any

import pytest

# The seconds and the processor seconds of each long test file, measured by `make test TIMES=1`.
MEASUREMENTS_FILE = Path(__file__).with_name("order.json")
# The assumed duration in seconds of each test in a file that has not been measured.
_SECONDS_PER_TEST = 0.15


def longest_first(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests by file, the longest files first.

    A long file that starts last would leave all processes but one idle. Files that mostly compute
    alternate with files that mostly wait, because processes would idle if all their files waited.
    """
    measured: dict[str, tuple[int, int]] = json.loads(MEASUREMENTS_FILE.read_text())
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)

    def duration(name: str) -> float:
        return measured[name][0] if name in measured else len(files[name]) * _SECONDS_PER_TEST

    # On a busy machine, all test files wait for a processor. Therefore a file only counts as
    # waiting if it waits longer than the median file.
    usual_share = median(cpu_seconds / seconds for seconds, cpu_seconds in measured.values())

    def is_waiting(name: str) -> bool:
        seconds, cpu_seconds = measured.get(name, (0, 0))
        return cpu_seconds < usual_share * seconds

    sorted_files = sorted(files, key=duration, reverse=True)
    waiting_files = filter(is_waiting, sorted_files)
    computing_files = filterfalse(is_waiting, sorted_files)
    names = chain.from_iterable(zip_longest(computing_files, waiting_files))
    return [item for name in names if name for item in files[name]]


# The number of slowest test files in the summary of a test run.
_SHOWN_FILES = 10
# A test file must take more seconds than this, or `--times` omits it from order.json.
_MIN_SECONDS = 3
_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds() -> float:
    """Return the processor seconds of this process and all its descendants, also of ended ones."""
    parents = {}
    ticks = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The second field of ``/proc/PID/stat`` is the name of the program, which may contain
            # blanks and brackets (see proc(5)).
            fields = path.read_bytes().rpartition(b")")[2].split()
            pid = int(path.parent.name)
            parents[pid] = int(fields[1])
            ticks[pid] = sum(map(int, fields[11:15]))

    def is_descendant(pid: int) -> bool:
        while pid not in (0, os.getpid()):
            pid = parents.get(pid, 0)
        return pid != 0

    return sum(ticks[pid] for pid in ticks if is_descendant(pid)) / _TICKS


class Costs:
    """Measures the test files of this process, and collects the measurements of other processes."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[float, float]] = {}
        self._began = self._last = time.monotonic(), processor_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        result = yield
        # Measure once per test file, because reading all processes takes a few milliseconds.
        if nextitem is None or nextitem.path != item.path:
            (wall, processor), self._last = self._last, (time.monotonic(), processor_seconds())
            cost = self._last[0] - wall, max(0.0, self._last[1] - processor)
            self.files[item.nodeid.partition("::")[0]] = cost
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output["costs"] = self.files

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.files |= getattr(node, "workeroutput", {}).get("costs", {})

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        usages = [
            resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ]
        cpu_seconds = sum(each.ru_utime + each.ru_stime for each in usages)
        seconds = time.monotonic() - self._began[0]
        terminalreporter.section(f"{seconds:.0f} s, {cpu_seconds:.0f} CPU-s in all processes")
        slowest = sorted(self.files.items(), key=lambda each: -each[1][0])
        for file, (wall, processor) in slowest[:_SHOWN_FILES]:
            terminalreporter.write_line(f"{wall:6.1f} s {processor:6.1f} CPU-s  {file}")
        if config.getoption("times"):
            # Keep the earlier measurements of the test files that did not run this time.
            costs = json.loads(MEASUREMENTS_FILE.read_text())
            costs |= {file: list(map(round, cost)) for file, cost in self.files.items()}
            long_files = {
                file: cost
                for file, cost in sorted(costs.items())
                if cost[0] > _MIN_SECONDS and (config.rootpath / file).exists()
            }
            lines = (f"{json.dumps(file)}: {cost}" for file, cost in long_files.items())
            MEASUREMENTS_FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items[:] = longest_first(items)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", action="store_true", help="write the seconds of each file")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs(), "costs")
