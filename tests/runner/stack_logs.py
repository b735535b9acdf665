"""What the programs of the stacks wrote while a test ran, for the report of its failure."""

import re
from collections.abc import Generator
from pathlib import Path

import pytest

from devstack.harness.opening import OPEN_STACKS

_MAX_LINES = 30
# A record has its traceback in it.
_MAX_CHARACTERS = 4_000
_TROUBLE = re.compile(r'"level": "(?:warning|error|critical)"|: Traceback ')
_TIME = re.compile(r'"timestamp": "([^"]+)"')

_sizes = pytest.StashKey[dict[Path, int]]()


def _logs() -> dict[Path, int]:
    """The size of each log; two processes may write one."""
    logs = {running.log for stack in OPEN_STACKS for running in stack.processes}
    return {log: log.stat().st_size for log in logs if log.exists()}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_sizes] = _logs()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (written := _written(item.stash.get(_sizes, {}))):
        report.sections.append(("What the stack's programs logged, trouble first", written))
    return report


def _written(before: dict[Path, int]) -> str:
    timed = []
    for log, size in _logs().items():
        at = ""
        with log.open("rb") as file:
            # A log may have been put aside and begun anew.
            file.seek(min(before.get(log, 0), size))
            for line in file.read().decode(errors="replace").splitlines():
                found = _TIME.search(line)
                at = found[1] if found else at
                timed.append((at, f"{log.stem}: {line[:_MAX_CHARACTERS]}"))
    # Lines that differ by their time alone are told once, the last.
    last = {_TIME.sub("", line): line for _, line in sorted(timed, key=lambda each: each[0])}
    lines = list(last.values())
    trouble = [line for line in lines if _TROUBLE.search(line)][-_MAX_LINES:]
    rest = [line for line in lines if line not in trouble]
    room = _MAX_LINES - len(trouble)
    return "\n".join([*trouble, *(rest[-room:] if room else [])])
