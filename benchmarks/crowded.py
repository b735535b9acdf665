"""Checks that a crowded machine makes work slow, but never makes it fail.

Each part of the benchmark crowds a stack in its own way, and is a module with a function
``measure`` that returns the results.
"""

from benchmarks import crowded_callers, crowded_recovery, crowded_short_work, crowded_work
from benchmarks.measure import Finding

_PARTS = (crowded_work, crowded_recovery, crowded_callers, crowded_short_work)


def run() -> list[Finding]:
    return [finding for part in _PARTS for finding in part.measure()]
