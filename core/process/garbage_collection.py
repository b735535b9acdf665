"""Switches Python's garbage collection off while a process starts, and on again afterwards.

A server creates 200,000 objects during its start, and only fifty of these objects are garbage.
"""

import gc

_STANDARD_THRESHOLDS = gc.get_threshold()
# The number of new objects that triggers a garbage collection exceeds the number of objects that a
# process creates during its start. A finite threshold limits the garbage of a process that never
# calls ``end_start``.
_STARTUP_THRESHOLDS = (1_000_000, 10, 10)


# Optimization: no garbage collection while a process starts (decision 17).
def begin_start() -> None:
    """Stop Python's garbage collection until ``end_start`` is called."""
    gc.set_threshold(*_STARTUP_THRESHOLDS)


def end_start() -> None:
    """Resume garbage collection, but exclude all objects that already exist.

    Garbage from the start of the process stays in memory, because collecting it would take a tenth
    of a second.
    """
    gc.freeze()
    gc.set_threshold(*_STANDARD_THRESHOLDS)


def freeze_before_fork() -> None:
    """Exclude all existing objects from garbage collection, so that forked processes share them.

    A garbage collection writes to every object that it visits. Writing to an object in a forked
    process copies the object's memory page.
    """
    gc.collect()
    gc.freeze()
