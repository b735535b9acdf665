"""Which tests `make test` leaves to `make test-full`, and in which part of it they run.

A test is in the fast tier unless it

- needs a second host, another release, or the failure or the build of another program;
- takes more than five seconds, or two seconds of a processor, on a quiet machine;
- proves of every page, byte or row what a few of them prove.

Such a test is in the full tier: by its folder below, or by ``@pytest.mark.full("faults")``. A test
with few examples in the fast tier and many in the full one has ``@pytest.mark.both("properties")``.
"""

from collections.abc import Iterable

import pytest

PARTS = (
    "faults",
    "machines",
    "processes",
    "browser",
    "clients",
    "properties",
    "timing",
    "containers",
)
# Whole folders and files; the longest beginning that fits a file counts.
FULL = {
    "tests/faults/": "faults",
    "tests/cluster/": "machines",
    "tests/brokers/": "machines",
    "tests/containers/": "containers",
}


def part_of(item: pytest.Item) -> str | None:
    """Return the part of the full tier that runs this test, or None for none."""
    for name in ("full", "both"):
        if mark := item.get_closest_marker(name):
            part = mark.args[0]
            assert part in PARTS, f"{item.nodeid}: no part of the full tier is called {part!r}"
            return str(part)
    fitting = [path for path in FULL if item.nodeid.startswith(path)]
    return FULL[max(fitting, key=len)] if fitting else None


def is_fast(item: pytest.Item) -> bool:
    """Return whether `make test` runs this test."""
    return part_of(item) is None or any(item.get_closest_marker(name) for name in ("fast", "both"))


def of_the_tier(items: Iterable[pytest.Item], tier: str) -> list[pytest.Item]:
    """Return the tests of the fast tier, of all parts of the full one, or of one part."""
    if tier == "fast":
        return [item for item in items if is_fast(item) and not item.get_closest_marker("check")]
    if tier == "full":
        return [item for item in items if part_of(item)]
    return [item for item in items if part_of(item) == tier]
