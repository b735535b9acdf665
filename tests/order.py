"""In which order several processes take the files of tests, each process a whole file at a time."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

# Seconds of each file that takes more than a few, measured by `make test TIMES=1`.
MEASURED = Path(__file__).with_name("order.json")
# A test without a measurement takes about so long.
_SECONDS_A_TEST = 0.15


def longest_first(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests, file by file, the longest files first.

    A long file that begins last leaves the other processes without work.
    """
    seconds: dict[str, float] = json.loads(MEASURED.read_text())
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)

    def length(name: str) -> float:
        return seconds.get(name, len(files[name]) * _SECONDS_A_TEST)

    return [item for name in sorted(files, key=length, reverse=True) for item in files[name]]
