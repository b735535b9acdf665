"""Records spans, which are the timed steps of a request or a job.

An operator can configure a collector that receives the spans. Without a collector, the process
creates no spans and doesn't import OpenTelemetry. A span contains only the attributes in
``SpanAttributes``. A span never contains personal data, user input or the text of an error.
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
    return _tracing is not None and _tracing.is_recording()


def step_span(
    name: str, kind: StepKind = "internal", attributes: SpanAttributes | None = None
) -> AbstractContextManager[None]:
    """Record the ``with`` block as a child of the current span. Periodic work has no such span."""
    if _tracing is None or not _tracing.is_recording():
        return NO_SPAN
    return _tracing.step(name, kind, attributes or {})


def request_span(name: str, callers: str | None) -> AbstractContextManager[None]:
    return NO_SPAN if _tracing is None else _tracing.request(name, callers)


def work_span(
    name: str, traceparent: str | None, attributes: SpanAttributes
) -> AbstractContextManager[None]:
    return NO_SPAN if _tracing is None else _tracing.work(name, traceparent, attributes)


def add_attributes(attributes: SpanAttributes) -> None:
    if _tracing is not None:
        _tracing.note(attributes)


def note_route(method: str, route: str, status: int) -> None:
    """Use the matched route as the name of the request's span."""
    if _tracing is not None:
        _tracing.name_request(method, route, status)


def note_failure(error: Exception) -> None:
    """Record the type of a handled error in the current span, but not the error's text."""
    if _tracing is not None:
        _tracing.note_failure(error)


def current_traceparent() -> str | None:
    """Return the W3C Trace Context of the current span, for a process that continues the trace."""
    return None if _tracing is None else _tracing.traceparent()


def current_ids() -> dict[str, str]:
    return {} if _tracing is None else _tracing.ids()


def start_tracing(process: str) -> None:
    from core.telemetry.collector import is_tracing_enabled

    if is_tracing_enabled():
        absent_modules.show_metrics()
        from core.telemetry.tracing import open_tracing

        set_tracing(open_tracing(process))


def stop_tracing() -> None:
    """Stop recording spans, and try to send all unsent spans within a time limit."""
    if _tracing is not None:
        tracing = _tracing
        set_tracing(None)
        tracing.close()
