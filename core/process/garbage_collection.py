"""Controls when Python collects garbage: never while a process starts, and as usual afterwards.

A server creates 200,000 objects at its start, and only fifty of these are garbage.
"""

import gc

_STANDARD = gc.get_threshold()
# More than a start makes. A process that forgets to end its start holds no more garbage than this.
_WHILE_STARTING = (1_000_000, 10, 10)


# Optimization: no garbage collection at the start (decision 17).
def begin_start() -> None:
    """Stop collecting garbage until ``end_start``."""
    gc.set_threshold(*_WHILE_STARTING)


def end_start() -> None:
    """Exclude all existing objects from garbage collection, and collect garbage as usual.

    There is no collection before, because it takes a tenth of a second and finds no garbage.
    """
    gc.freeze()
    gc.set_threshold(*_STANDARD)


def share() -> None:
    """Before a fork: keep what the child inherits in memory that both share.

    A garbage collection writes to every object that it visits, and so copies its page.
    """
    gc.collect()
    gc.freeze()
