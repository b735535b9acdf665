"""The tiers of the tests: which command runs which test.

`make test` runs the tier `fast`, `make check` the tier `check`, and `make test-full` one tier for
each part. A test belongs to the tiers of its ``@pytest.mark.tier(…)``, of the mark of its module,
and of its folder in `FOLDERS`. Without any of these, the test belongs to the tier `fast`.

A test doesn't belong to the tier `fast` alone if it

- needs a second host, another release, or the failure or the build of another program;
- takes more than five seconds, or two seconds of a processor, on a quiet machine;
- proves for every page, byte or row what a few examples prove.

A test with few examples in `make test` and many in a part has two tiers, for example
``@pytest.mark.tier("fast", "properties")``.
"""

import pytest

# The parts of `make test-full`.
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
    """Return the names of all tiers that the test belongs to."""
    tiers = {name for mark in item.iter_markers("tier") for name in mark.args}
    tiers |= {part for folder, part in FOLDERS.items() if item.nodeid.startswith(folder)}
    assert tiers <= set(TIERS), f"{item.nodeid}: these tiers don't exist: {tiers - set(TIERS)}"
    return tiers or {"fast"}


def is_selected(item: pytest.Item, tier: str) -> bool:
    """Return whether a run of this tier includes the test. ``full`` means all parts."""
    tiers = tiers_of(item)
    return not tiers.isdisjoint(PARTS) if tier == "full" else tier in tiers
