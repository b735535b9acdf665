"""Hides installed libraries that other libraries would import without need."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# The Redis client imports this module for metrics that Pressroom doesn't use. The import takes a
# tenth of a second and a few megabytes in each process.
_METRICS = "opentelemetry.sdk.metrics"


# Optimization: hidden imports (decision 17).
@contextmanager
def without(module: str) -> Iterator[None]:
    """Hide a module from the imports in the block, unless the module is already loaded."""
    known = sys.modules.setdefault(module, None)  # type: ignore[arg-type] # means: not installed
    try:
        yield
    finally:
        if known is None:
            del sys.modules[module]


def hide_metrics() -> None:
    """Hide the metrics of OpenTelemetry, unless the module is already loaded."""
    sys.modules.setdefault(_METRICS, None)  # type: ignore[arg-type] # means: not installed


def show_metrics() -> None:
    """Make the metrics of OpenTelemetry importable again."""
    if sys.modules.get(_METRICS) is None:
        sys.modules.pop(_METRICS, None)
