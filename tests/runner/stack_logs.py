"""Shows in a test's failure report what the programs of test stacks logged during the test."""

import re
from collections.abc import Generator
from pathlib import Path

import pytest

from devstack.harness.opening import OPEN_STACKS

_MAX_LINES = 30
# The maximum length of a log line in a failure report. A log line about an error contains the
# traceback.
_MAX_CHARACTERS = 4_000
_PROBLEM = re.compile(r'"level": "(?:warning|error|critical)"|: Traceback ')
_TRACEBACK = "Traceback "
_TIME = re.compile(r'"timestamp": "([^"]+)"')

_sizes = pytest.StashKey[dict[Path, int]]()


def _log_sizes() -> dict[Path, int]:
    """Return the size of each log file of all test stacks. Two processes may share a log file."""
    logs = {running.log for stack in OPEN_STACKS for running in stack.processes}
    return {log: log.stat().st_size for log in logs if log.exists()}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_sizes] = _log_sizes()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (lines := _read_new_lines(item.stash.get(_sizes, {}))):
        report.sections.append(("What the stack's programs logged, trouble first", lines))
    return report


def _read_new_lines(sizes_before: dict[Path, int]) -> str:
    """Return the last log lines that were written since the start of the test."""
    lines_with_times = []
    for log, size in _log_sizes().items():
        line_time = ""
        with log.open("rb") as file:
            # The log may be shorter than at the start of the test, because log files are rotated.
            file.seek(min(sizes_before.get(log, 0), size))
            for line in file.read().decode(errors="replace").splitlines():
                match = _TIME.search(line)
                line_time = match[1] if match else line_time
                lines_with_times.append((line_time, f"{log.stem}: {line[:_MAX_CHARACTERS]}"))
    # If several log lines differ only in their time, keep only the last of them.
    sorted_lines = sorted(lines_with_times, key=lambda each: each[0])
    lines = list({_TIME.sub("", line): line for _, line in sorted_lines}.values())
    problems = [line for line in lines if _PROBLEM.search(line)][-_MAX_LINES:]
    problems.sort(key=lambda line: _TRACEBACK not in line)
    other_lines = [line for line in lines if line not in problems]
    free_lines = _MAX_LINES - len(problems)
    return "\n".join([*problems, *(other_lines[-free_lines:] if free_lines else [])])
