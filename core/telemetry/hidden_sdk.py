"""Keeps libraries from loading OpenTelemetry's SDK for themselves.

The client of Redis does when it is imported, for metrics that nothing here uses: a tenth of a
second and some megabytes for each process and each command. To a library the SDK seems not to be
installed, until this process has a use for it.
"""

import sys

_ASKED_FOR = "opentelemetry.sdk.metrics"


def hide() -> None:
    """Before the first of these libraries is imported. What was loaded already stays."""
    sys.modules.setdefault(_ASKED_FOR, None)  # type: ignore[arg-type] # how Python says: not there


def show() -> None:
    if sys.modules.get(_ASKED_FOR) is None:
        sys.modules.pop(_ASKED_FOR, None)
