"""Disables Python's garbage collection during the startup of a process.

A server process creates 200,000 objects during startup, but hardly any garbage.
"""

import gc

_STANDARD_THRESHOLDS = gc.get_threshold()
# The first threshold of garbage collection exceeds the number of objects that a process creates
# during startup. Garbage collection isn't disabled, because a process that never calls
# ``end_start`` could run out of memory.
_STARTUP_THRESHOLDS = (1_000_000, 10, 10)


# Optimization: no garbage collection while a process starts (decision 17).
def begin_start() -> None:
    """Suspend Python's garbage collection until ``end_start`` is called."""
    gc.set_threshold(*_STARTUP_THRESHOLDS)


def end_start() -> None:
    """Resume garbage collection, but never collect objects that exist at the end of the startup.

    Collecting the startup's garbage would take a tenth of a second.
    """
    gc.freeze()
    gc.set_threshold(*_STANDARD_THRESHOLDS)


def freeze_before_fork() -> None:
    """Exclude existing objects from garbage collection, so that forked processes share memory.

    Garbage collection would write to every object. The kernel copies each shared memory page to
    which a forked process writes.
    """
    gc.collect()
    gc.freeze()
