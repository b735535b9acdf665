"""Runs a fake collector of traces, which accepts OTLP over HTTP and records all spans."""

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from devstack.harness.polling import eventually
from tests.support.http.servers import QuietHandler, http_server, running_server


@dataclass(frozen=True)
class ExportedSpan:
    """A span, with the attributes of the process that created it."""

    resource: dict[str, str | int]
    span: trace_pb2.Span

    @property
    def name(self) -> str:
        return str(self.span.name)

    @property
    def kind(self) -> str:
        return str(trace_pb2.Span.SpanKind.Name(self.span.kind)).removeprefix("SPAN_KIND_")

    @property
    def service(self) -> str:
        return str(self.resource["service.name"])

    @property
    def instance(self) -> str:
        return str(self.resource["service.instance.id"])

    @property
    def trace_id(self) -> str:
        return bytes(self.span.trace_id).hex()

    @property
    def span_id(self) -> str:
        return bytes(self.span.span_id).hex()

    @property
    def parent_id(self) -> str:
        return bytes(self.span.parent_span_id).hex()

    @property
    def attributes(self) -> dict[str, str | int]:
        return _plain(self.span.attributes)

    @property
    def failed(self) -> bool:
        return bool(self.span.status.code == trace_pb2.Status.STATUS_CODE_ERROR)


@dataclass
class Collector:
    """A fake collector of traces. If ``silent`` is true, the collector never responds."""

    url: str = ""
    silent: bool = False
    calls: int = 0
    bodies: list[bytes] = field(default_factory=list)
    _closing: threading.Event = field(default_factory=threading.Event)

    @property
    def environment(self) -> dict[str, str]:
        """Return environment variables that make a process send its spans to this collector."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}

    def spans(self) -> list[ExportedSpan]:
        return [
            ExportedSpan(_plain(resource_spans.resource.attributes), span)
            for body in list(self.bodies)
            for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope_spans in resource_spans.scope_spans
            for span in scope_spans.spans
        ]

    def trace(
        self, root: str, is_whole: Callable[[list[ExportedSpan]], object], *, after: int = 0
    ) -> list[ExportedSpan]:
        """Return the spans of the newest trace whose root span has the name ``root``.

        Wait until ``is_whole`` returns true for the spans of the trace. ``after``: ignore the
        traces in the first ``after`` request bodies that the collector received.
        """

        def find_trace() -> list[ExportedSpan]:
            spans = self.spans()
            old_ids = {each.trace_id for each in Collector(bodies=self.bodies[:after]).spans()}
            roots = [
                each
                for each in spans
                if each.name == root and not each.parent_id and each.trace_id not in old_ids
            ]
            if not roots:
                return []
            trace = [each for each in spans if each.trace_id == roots[-1].trace_id]
            return trace if is_whole(trace) else []

        trace = eventually(find_trace, within=60, what=f"a whole trace of {root}")
        assert isinstance(trace, list)
        return trace

    def take(self, body: bytes) -> None:
        self.calls += 1
        if self.silent:
            self._closing.wait()
        self.bodies.append(body)

    def close(self) -> None:
        self._closing.set()


def _plain(pairs: Any) -> dict[str, str | int]:
    """Convert the attributes of a span or process from Protobuf to a dict."""

    def read_value(pair: KeyValue) -> str | int:
        type_name = pair.value.WhichOneof("value")
        value: str | int = getattr(pair.value, str(type_name))
        return value

    return {pair.key: read_value(pair) for pair in pairs}


@contextmanager
def running_collector(*, silent: bool = False) -> Iterator[Collector]:
    collector = Collector(silent=silent)

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = self.read_body()
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            is_traces = self.path == "/v1/traces"
            if is_traces:
                collector.take(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            headers = {"Content-Type": "application/x-protobuf"}
            self.reply(200 if is_traces else 404, answer, headers)

    with running_server(http_server(Handler)) as url:
        collector.url = url
        try:
            yield collector
        finally:
            collector.close()
