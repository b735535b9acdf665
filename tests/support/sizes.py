"""How large a test is: how many rows, kills or examples.

A test has up to three sizes, chosen by ``PRESSROOM_SIZE``: few, which `make test` runs; short,
which `make test-full` runs; and full, which `make test-full SIZE=full` runs before a release.
"""

import os

SIZE = os.environ.get("PRESSROOM_SIZE", "few")
FULL = SIZE == "full"


def sized(short: int, full: int, *, few: int | None = None) -> int:
    """Return the number for the size of this run.

    Args:
        few: the number in `make test`, for a test that runs in both tiers; `short` by default.
    """
    if FULL:
        return full
    return few if SIZE == "few" and few is not None else short
