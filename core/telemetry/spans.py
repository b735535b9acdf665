"""Spans: which steps a request or a job takes, and for how long, for a collector of the operator's.

A process that has no collector to tell (``begin``) makes no span and imports nothing for it. A
span says only what ``Attributes`` has: nothing that a person sent, nothing by which a person can be
found, and no text of an error.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Literal, TypedDict

from core.process import absent_modules

if TYPE_CHECKING:
    from core.telemetry.tracing import Tracing

StepKind = Literal["internal", "client", "producer"]

# docs/tracing.md says what each means. The first names are those of OpenTelemetry's conventions.
Attributes = TypedDict(
    "Attributes",
    {
        "http.request.method": str,
        "http.route": str,
        "http.response.status_code": int,
        "server.address": str,
        "server.port": int,
        "db.system.name": str,
        "db.query.summary": str,
        "messaging.destination.name": str,
        "gen_ai.request.model": str,
        "pressroom.job.id": int,
        "pressroom.job.kind": str,
        "pressroom.job.attempt": int,
        "pressroom.request.kind": str,
    },
    total=False,
)

_tracing: "Tracing | None" = None
NOTHING = nullcontext()


def set_tracing(tracing: "Tracing | None") -> None:
    global _tracing  # noqa: PLW0603 - one for the process, as its log is
    _tracing = tracing


def is_recording() -> bool:
    """Return whether a step that begins now is recorded."""
    return _tracing is not None and _tracing.is_recording()


def span(
    name: str, kind: StepKind = "internal", attributes: Attributes | None = None
) -> AbstractContextManager[None]:
    """A step of what the current span does; without one, nothing is recorded.

    Work that a process does by itself each second makes no traces.
    """
    if _tracing is None or not _tracing.is_recording():
        return NOTHING
    return _tracing.step(name, kind, attributes or {})


def request_span(name: str, callers: str | None) -> AbstractContextManager[None]:
    """A trace of its own for a request, linked to the ``traceparent`` that its caller sent."""
    return NOTHING if _tracing is None else _tracing.request(name, callers)


def work_span(
    name: str, traceparent: str | None, attributes: Attributes
) -> AbstractContextManager[None]:
    """Work that another process asked for, in the trace that was under way there."""
    return NOTHING if _tracing is None else _tracing.work(name, traceparent, attributes)


def note(attributes: Attributes) -> None:
    """Add to the current span."""
    if _tracing is not None:
        _tracing.note(attributes)


def note_route(method: str, route: str, status: int) -> None:
    """Name the current span, that of a request, by what is known at the request's end."""
    if _tracing is not None:
        _tracing.name_request(method, route, status)


def note_failure(error: Exception) -> None:
    """For an error that does not leave the span's block: of its kind, and not of its text."""
    if _tracing is not None:
        _tracing.note_failure(error)


def traceparent() -> str | None:
    """The current span, for the process that goes on (W3C Trace Context); ``None`` without one."""
    return None if _tracing is None else _tracing.traceparent()


def ids() -> dict[str, str]:
    """The current span's ``trace_id`` and ``span_id``, for a log or an exemplar; empty without."""
    return {} if _tracing is None else _tracing.ids()


def begin(process: str) -> None:
    """Tell the collector that the environment names, if any, what this process does from now on.

    ``process`` is its name there, such as ``pressroom-api``.
    """
    from core.telemetry.collector import is_wanted

    if is_wanted():
        absent_modules.show()
        from core.telemetry.tracing import open_tracing

        set_tracing(open_tracing(process))


def end() -> None:
    """Send what has not been sent, for a bounded time."""
    if _tracing is not None:
        ended = _tracing
        set_tracing(None)
        ended.close()
