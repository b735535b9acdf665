"""Keeps libraries from importing other libraries that they only need for features we don't use."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# The client of Redis imports this module for metrics that we don't use. The import takes a tenth of
# a second and some megabytes in each process.
_HIDDEN_MODULE = "opentelemetry.sdk.metrics"


# Optimization: absent libraries (decision 17).
@contextmanager
def without(module: str) -> Iterator[None]:
    """Make imports in the block fail as if the module were not installed.

    A module that was imported before stays available.
    """
    known = sys.modules.setdefault(module, None)  # type: ignore[arg-type] # means: not installed
    try:
        yield
    finally:
        if known is None:
            del sys.modules[module]


def hide_metrics() -> None:
    """Make OpenTelemetry's metrics seem absent. Call this before the client of Redis is imported.

    If the metrics were imported before, they stay available.
    """
    sys.modules.setdefault(_HIDDEN_MODULE, None)  # type: ignore[arg-type] # means: not installed


def show_metrics() -> None:
    """Make OpenTelemetry's metrics available again."""
    if sys.modules.get(_HIDDEN_MODULE) is None:
        sys.modules.pop(_HIDDEN_MODULE, None)
