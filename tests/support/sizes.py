"""Chooses how large a test is, for example how many rows or Hypothesis examples it uses.

The environment variable ``PRESSROOM_SIZE`` selects the size `few`, `short` or `full`. `make test`
selects `few`, and `make test-full` selects `short`. Before a release, run
`make test-full SIZE=full`.
"""

import os

SIZE = os.environ.get("PRESSROOM_SIZE", "few")
FULL = SIZE == "full"


def sized(short: int, full: int, *, few: int | None = None) -> int:
    """Return ``few``, ``short`` or ``full``, depending on the selected size of tests.

    If ``few`` is None, return ``short`` even if the size `few` is selected.
    """
    if FULL:
        return full
    return few if SIZE == "few" and few is not None else short
