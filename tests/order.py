"""In which order several processes take the files of tests, each process a whole file at a time."""

import json
from collections.abc import Iterable
from itertools import chain, filterfalse, zip_longest
from pathlib import Path
from statistics import median

import pytest

# How long each file takes that takes more than a few seconds, and how long it computes meanwhile,
# measured by `make test TIMES=1`.
MEASURED = Path(__file__).with_name("order.json")
# A test without a measurement takes about so long.
_SECONDS_A_TEST = 0.15


def longest_first(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests by file: the longest first, one that waits after each that computes.

    A long file that begins last leaves the other processes without work, and so do several files at
    once that wait.
    """
    measured: dict[str, tuple[int, int]] = json.loads(MEASURED.read_text())
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)

    def length(name: str) -> float:
        return measured[name][0] if name in measured else len(files[name]) * _SECONDS_A_TEST

    # On a busy machine all files wait: what counts is which ones wait more than the others.
    usual = median(computing / seconds for seconds, computing in measured.values())

    def waits(name: str) -> bool:
        seconds, computing = measured.get(name, (0, 0))
        return computing < usual * seconds

    longest = sorted(files, key=length, reverse=True)
    waiting, computing = filter(waits, longest), filterfalse(waits, longest)
    names = chain.from_iterable(zip_longest(computing, waiting))
    return [item for name in names if name for item in files[name]]
