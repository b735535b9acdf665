"""A collector of traces: it takes OTLP over HTTP, and keeps what it was sent."""

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
from tests.support.http.servers import QuietHandler, http_server, running


@dataclass(frozen=True)
class Exported:
    """A span, with the process that made it."""

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
    url: str = ""
    # While it is set, no call is answered.
    silent: bool = False
    calls: int = 0
    bodies: list[bytes] = field(default_factory=list)
    _closing: threading.Event = field(default_factory=threading.Event)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that name this collector, which is told soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}

    def spans(self) -> list[Exported]:
        return [
            Exported(_plain(of_process.resource.attributes), span)
            for body in list(self.bodies)
            for of_process in ExportTraceServiceRequest.FromString(body).resource_spans
            for of_scope in of_process.scope_spans
            for span in of_scope.spans
        ]

    def trace(
        self, root: str, is_whole: Callable[[list[Exported]], object], *, after: int = 0
    ) -> list[Exported]:
        """The newest trace whose root has this name, once it is whole.

        ``after`` counts the bodies that came before what is looked for.
        """

        def look() -> list[Exported]:
            known = self.spans()
            before = {each.trace_id for each in Collector(bodies=self.bodies[:after]).spans()}
            roots = [
                each
                for each in known
                if each.name == root and not each.parent_id and each.trace_id not in before
            ]
            if not roots:
                return []
            found = [each for each in known if each.trace_id == roots[-1].trace_id]
            return found if is_whole(found) else []

        found = eventually(look, within=60, what=f"a whole trace of {root}")
        assert isinstance(found, list)
        return found

    def take(self, body: bytes) -> None:
        self.calls += 1
        if self.silent:
            self._closing.wait()
        self.bodies.append(body)

    def close(self) -> None:
        self._closing.set()


def _plain(pairs: Any) -> dict[str, str | int]:
    def value(pair: KeyValue) -> str | int:
        which = pair.value.WhichOneof("value")
        found: str | int = getattr(pair.value, str(which))
        return found

    return {pair.key: value(pair) for pair in pairs}


@contextmanager
def collecting(*, silent: bool = False) -> Iterator[Collector]:
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

    with running(http_server(Handler)) as url:
        collector.url = url
        try:
            yield collector
        finally:
            collector.close()
