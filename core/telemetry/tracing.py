"""Records spans with OpenTelemetry.

Only ``core.telemetry.spans`` imports this module, and only if a collector is configured.
"""

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http import HTTPStatus
from importlib.metadata import version
from threading import Thread
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from core.errors import DomainError
from core.logging import get_logger
from core.telemetry.attributes import SpanAttributes, StepKind
from core.telemetry.collector import has_service_name

log = get_logger(__name__)

# The time limit for sending the last spans when a process exits. Without this limit, a trace
# collector that hangs would delay the exit of the process.
MAX_END_SECONDS = 2.0
_PROPAGATOR = TraceContextTextMapPropagator()
_HEADER = "traceparent"
_NO_PARENT = Context()


class Tracing:
    def __init__(self, tracer: Tracer, close: Callable[[], None]) -> None:
        self._tracer = tracer
        self.close = close

    def is_recording(self) -> bool:
        return trace.get_current_span().is_recording()

    def step(
        self, name: str, kind: StepKind, attributes: SpanAttributes
    ) -> AbstractContextManager[None]:
        return self._current(name, SpanKind[kind.upper()], attributes)

    def request(self, name: str, callers: str | None) -> AbstractContextManager[None]:
        """Start a new trace instead of continuing the caller's trace.

        If the span continued the caller's trace, API callers could choose which requests are
        traced, and add spans to other callers' traces.
        """
        link = trace.get_current_span(_extracted(callers)).get_span_context()
        links = [Link(link)] if link.is_valid else []
        return self._current(name, SpanKind.SERVER, {}, _NO_PARENT, links)

    def work(
        self, name: str, traceparent: str | None, attributes: SpanAttributes
    ) -> AbstractContextManager[None]:
        return self._current(name, SpanKind.CONSUMER, attributes, _extracted(traceparent))

    def note(self, attributes: SpanAttributes) -> None:
        trace.get_current_span().set_attributes(_plain(attributes))

    def name_request(self, method: str, route: str, status: int) -> None:
        current = trace.get_current_span()
        current.update_name(f"{method} {route}")
        self.note({"http.request.method": method, "http.route": route})
        self.note({"http.response.status_code": status})
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            current.set_status(StatusCode.ERROR)

    def note_failure(self, error: Exception) -> None:
        _fail(trace.get_current_span(), error)

    def traceparent(self) -> str | None:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier.get(_HEADER)

    def ids(self) -> dict[str, str]:
        context = trace.get_current_span().get_span_context()
        if not context.is_valid or not context.trace_flags.sampled:
            return {}
        return {
            "trace_id": trace.format_trace_id(context.trace_id),
            "span_id": trace.format_span_id(context.span_id),
        }

    @contextmanager
    def _current(
        self,
        name: str,
        kind: SpanKind,
        attributes: SpanAttributes,
        parent: Context | None = None,
        links: list[Link] | None = None,
    ) -> Iterator[None]:
        started = self._tracer.start_span(
            name, context=parent, kind=kind, attributes=_plain(attributes), links=links
        )
        # Don't record error messages, because error messages can quote user input.
        with trace.use_span(
            started, end_on_exit=True, record_exception=False, set_status_on_exception=False
        ):
            try:
                yield
            except BaseException as error:
                _fail(started, error)
                raise


def open_tracing(process: str) -> Tracing | None:
    """Start recording spans, or return ``None`` if the environment variables are invalid.

    When the queue of unsent spans is full, the oldest spans are dropped.
    """
    attributes = {} if has_service_name() else {"service.name": process}
    attributes |= {
        "service.version": version("pressroom"),
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
        # The attribute ``pressroom.process`` names the kind of process, even if the operator
        # renames the service.
        "pressroom.process": process,
    }
    # Raise the log level of the exporter, because the exporter would otherwise log every failed
    # attempt to send spans.
    logging.getLogger("opentelemetry.exporter").setLevel("ERROR")
    try:
        # With ``shutdown_on_exit``, OpenTelemetry's SDK would delay the exit of the process by half
        # a minute.
        provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except ValueError as error:
        log.error("telemetry.off", reason=str(error))  # noqa: TRY400
        return None

    def close() -> None:
        ending = Thread(target=provider.shutdown, name="telemetry-end", daemon=True)
        ending.start()
        ending.join(MAX_END_SECONDS)

    return Tracing(provider.get_tracer("pressroom", version("pressroom")), close)


def _fail(span: Span, error: BaseException) -> None:
    # Don't mark a span as failed after a domain error or a disconnect of the caller, because the
    # server worked correctly.
    kind = error.code if isinstance(error, DomainError) else type(error).__name__
    span.set_attribute("error.type", kind)
    if isinstance(error, Exception) and not isinstance(error, DomainError):
        span.set_status(StatusCode.ERROR)


def _extracted(traceparent: str | None) -> Context:
    return _PROPAGATOR.extract({_HEADER: traceparent or ""}, _NO_PARENT)


def _plain(attributes: SpanAttributes) -> dict[str, Any]:
    return {**attributes}
