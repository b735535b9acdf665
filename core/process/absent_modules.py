"""Hides installed modules from libraries that would import these modules without need."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# The Redis client imports ``opentelemetry.sdk.metrics`` for metrics that Pressroom doesn't use.
# The import of the metrics module takes a tenth of a second and a few megabytes in each process.
_METRICS = "opentelemetry.sdk.metrics"


# Optimization: modules hidden from imports (decision 17).
@contextmanager
def hide_module(module: str) -> Iterator[None]:
    """Make a module appear uninstalled in the ``with`` block, unless the module is loaded."""
    loaded_module = sys.modules.setdefault(module, None)  # type: ignore[arg-type] # means: not installed
    try:
        yield
    finally:
        if loaded_module is None:
            del sys.modules[module]


def hide_metrics() -> None:
    """Make the metrics module of OpenTelemetry appear uninstalled, unless the module is loaded."""
    sys.modules.setdefault(_METRICS, None)  # type: ignore[arg-type] # means: not installed


def show_metrics() -> None:
    """Allow imports of the metrics module of OpenTelemetry again."""
    if sys.modules.get(_METRICS) is None:
        sys.modules.pop(_METRICS, None)
