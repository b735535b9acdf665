"""In which order several processes take the files of tests, each process a whole file at a time."""

from collections import deque
from collections.abc import Iterable
from itertools import islice

import pytest

# Most of what they do is wait: for a lease to end, a process to start, a service to come back.
_WAITING = ("tests/faults/", "tests/cluster/", "tests/devstack/", "tests/api/")
# So many files that compute begin after each that waits. None of those is left for the end then,
# when nothing would use the time in which it waits.
_BETWEEN = 4


def spread(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The tests, file by file, those first that take long, and of these every fifth that waits."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    waiting = deque(each for name, each in files.items() if name.startswith(_WAITING))
    computing = [each for name, each in files.items() if not name.startswith(_WAITING)]
    rest = iter(sorted(computing, key=_length, reverse=True))
    ordered: list[pytest.Item] = []
    while waiting:
        ordered += waiting.popleft()
        for each in islice(rest, _BETWEEN):
            ordered += each
    for each in rest:
        ordered += each
    return ordered


def _length(tests: list[pytest.Item]) -> tuple[bool, int]:
    return any(each.get_closest_marker("slow") for each in tests), len(tests)
