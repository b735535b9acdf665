"""The tiers of the tests, which decide which tests each make target runs.

`make test` runs the tests of the tier `fast`, and `make check` runs the tests of the tier `check`.
Each part of `make test-full` runs the tests of the tier with the same name as the part.

The tiers of a test are the arguments of ``@pytest.mark.tier(…)`` for the test or its module, and
the tier of the test's folder in `FOLDERS`. A test without the mark `tier` belongs to the tier
`fast`, unless the test's folder is in `FOLDERS`.

A test needs another tier than `fast`, or a second tier, in three cases:

- The test needs a second host, another release, or another program that fails or must be built.
- The test takes more than five seconds, or two seconds of a processor, on a quiet machine.
- The test repeats for every page, byte or row what a few examples already prove.

A test with few examples in `make test` and many examples in a part of `make test-full` has two
tiers, for example ``@pytest.mark.tier("fast", "properties")``.
"""

import pytest

# The parts of `make test-full`. Each part has the same name as its tier.
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
TIERS = ("fast", "check", *PARTS)
FOLDERS = {
    "tests/faults/": "faults",
    "tests/cluster/": "machines",
    "tests/brokers/": "machines",
    "tests/containers/": "containers",
}


def tiers_of(item: pytest.Item) -> set[str]:
    tiers = {name for mark in item.iter_markers("tier") for name in mark.args}
    tiers |= {part for folder, part in FOLDERS.items() if item.nodeid.startswith(folder)}
    assert tiers <= set(TIERS), f"{item.nodeid}: these tiers don't exist: {tiers - set(TIERS)}"
    return tiers or {"fast"}


def is_selected(item: pytest.Item, tier: str) -> bool:
    """Return whether the test belongs to the tier."""
    tiers = tiers_of(item)
    return not tiers.isdisjoint(PARTS) if tier == "full" else tier in tiers
