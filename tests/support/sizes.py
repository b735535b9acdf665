"""Chooses how many rows, kills or examples a test uses.

The variable ``PRESSROOM_SIZE`` selects one of three sizes. `make test` uses `few`, `make test-full`
uses `short`, and `make test-full SIZE=full` uses `full`, which runs before a release.
"""

import os

SIZE = os.environ.get("PRESSROOM_SIZE", "few")
FULL = SIZE == "full"


def sized(short: int, full: int, *, few: int | None = None) -> int:
    """Return the number for the size of this run.

    ``few``: the number in `make test`. By default, it is the same as ``short``.
    """
    if FULL:
        return full
    return few if SIZE == "few" and few is not None else short
