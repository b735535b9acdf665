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


# The client of Redis imports it for metrics that nothing here uses: a tenth of a second and some
# megabytes for each process and each command. It seems not to be installed until it has a use.
_ASKED_FOR = "opentelemetry.sdk.metrics"


def hide() -> None:
    """Before the first of these libraries is imported. Modules that were loaded already stay."""
    sys.modules.setdefault(_ASKED_FOR, None)  # type: ignore[arg-type] # how Python says: not there


def show() -> None:
    if sys.modules.get(_ASKED_FOR) is None:
        sys.modules.pop(_ASKED_FOR, None)
