"""Keeps a library from loading another one that it can do without."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without(module: str) -> Iterator[None]:
    """To what is imported in the block, the module seems not to be installed.

    A module that was loaded already stays.
    """
    known = sys.modules.setdefault(module, None)  # type: ignore[arg-type] # how Python says: not there
    try:
        yield
    finally:
        if known is None:
            del sys.modules[module]
