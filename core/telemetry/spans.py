"""Records spans: the steps of a request or a job, with their durations.

An operator can configure a collector that receives the spans. Without a collector, the process
creates no spans and doesn't import OpenTelemetry. A span records only ``SpanAttributes``. A span
never contains personal data, user input or the text of an error.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from core.process import absent_modules
from core.telemetry.attributes import SpanAttributes, StepKind

if TYPE_CHECKING:
    from core.telemetry.tracing import Tracing

_tracing: "Tracing | None" = None
NO_SPAN = nullcontext()


def set_tracing(tracing: "Tracing | None") -> None:
    global _tracing  # noqa: PLW0603 - a process has one tracer
    _tracing = tracing


def is_recording() -> bool:
    """Return whether the process records steps at the moment."""
    return _tracing is not None and _tracing.is_recording()


def step_span(
    name: str, kind: StepKind = "internal", attributes: SpanAttributes | None = None
) -> AbstractContextManager[None]:
    """Record a step of the current span, or nothing if there is no current span.

    A process creates no traces of its periodic work, because periodic work has no current span.
    """
    if _tracing is None or not _tracing.is_recording():
        return NO_SPAN
    return _tracing.step(name, kind, attributes or {})


def request_span(name: str, callers: str | None) -> AbstractContextManager[None]:
    """Start a new trace for a request, and link the trace to the caller's ``traceparent``."""
    return NO_SPAN if _tracing is None else _tracing.request(name, callers)


def work_span(
    name: str, traceparent: str | None, attributes: SpanAttributes
) -> AbstractContextManager[None]:
    """Record work that another process requested, in the trace of the request."""
    return NO_SPAN if _tracing is None else _tracing.work(name, traceparent, attributes)


def add_attributes(attributes: SpanAttributes) -> None:
    """Add the attributes to the current span."""
    if _tracing is not None:
        _tracing.note(attributes)


def note_route(method: str, route: str, status: int) -> None:
    """Name the current span of a request after the route, at the end of the request."""
    if _tracing is not None:
        _tracing.name_request(method, route, status)


def note_failure(error: Exception) -> None:
    """Record the kind of an error that doesn't leave the span's block, but not its text."""
    if _tracing is not None:
        _tracing.note_failure(error)


def current_traceparent() -> str | None:
    """Return the current span as W3C Trace Context, for the process that continues the trace."""
    return None if _tracing is None else _tracing.traceparent()


def current_ids() -> dict[str, str]:
    """Return the ``trace_id`` and ``span_id`` of the current span, if there is one."""
    return {} if _tracing is None else _tracing.ids()


def start_tracing(process: str) -> None:
    """Start to record and send spans, if the environment variables name a collector.

    Args:
        process: the name of the process in the traces, such as ``pressroom-api``.
    """
    from core.telemetry.collector import is_tracing_enabled

    if is_tracing_enabled():
        absent_modules.show_metrics()
        from core.telemetry.tracing import open_tracing

        set_tracing(open_tracing(process))


def stop_tracing() -> None:
    """Stop recording, and send the remaining spans within a time limit."""
    if _tracing is not None:
        tracing = _tracing
        set_tracing(None)
        tracing.close()
