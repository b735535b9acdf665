"""Hides installed modules that libraries would import although Pressroom doesn't need them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# The Redis client imports ``opentelemetry.sdk.metrics`` for metrics that Pressroom doesn't use.
# Importing ``opentelemetry.sdk.metrics`` costs each process a tenth of a second and a few megabytes
# of memory.
_METRICS = "opentelemetry.sdk.metrics"


# Optimization: modules hidden from imports (decision 17).
@contextmanager
def hide_module(module: str) -> Iterator[None]:
    loaded_module = sys.modules.setdefault(module, None)  # type: ignore[arg-type] # means: not installed
    try:
        yield
    finally:
        if loaded_module is None:
            del sys.modules[module]


def hide_metrics() -> None:
    sys.modules.setdefault(_METRICS, None)  # type: ignore[arg-type] # means: not installed


def show_metrics() -> None:
    if sys.modules.get(_METRICS) is None:
        sys.modules.pop(_METRICS, None)
