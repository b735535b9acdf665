"""Measures the memory of an idle development stack.

Shared memory is divided equally among the processes that share it (PSS).
"""

import time

import psutil

from benchmarks.measure import NO_BAR, ROUNDS, Finding, median_and_spread
from benchmarks.running_stack import running_stack
from devstack.harness.process_memory import measure_memory

_SETTLE_SECONDS = 5.0
_MEGABYTE = 1024 * 1024


def run() -> list[Finding]:
    with running_stack() as stack:
        time.sleep(_SETTLE_SECONDS)
        supervisor = psutil.Process(stack["pids"]["supervisor"])
        rounds = []
        for _ in range(ROUNDS):
            rounds.append(_measure_processes(supervisor, stack["pids"]))
            time.sleep(1)
    totals = [sum(each.values()) / _MEGABYTE for each in rounds]
    total, spread = median_and_spread(totals)
    details = {name: round(size / _MEGABYTE) for name, size in sorted(rounds[-1].items())}
    return [Finding("memory: idle stack", total, "MB", NO_BAR, True, spread, details)]


def _measure_processes(supervisor: psutil.Process, pids: dict[str, int]) -> dict[str, int]:
    """Return the memory of each child process and its descendants in bytes."""
    names = {pid: name for name, pid in pids.items()}
    sizes = {"supervisor": measure_memory(supervisor.pid)}
    for child in supervisor.children():
        name = names.get(child.pid, child.name())
        family = [child, *child.children(recursive=True)]
        sizes[name] = sum(measure_memory(process.pid) for process in family)
    return sizes
