"""Types for the kinds and attributes of tracing spans."""

from typing import Literal, TypedDict

StepKind = Literal["internal", "client", "producer"]

# docs/tracing.md explains each span attribute. Most names of span attributes come from
# OpenTelemetry's conventions.
SpanAttributes = TypedDict(
    "SpanAttributes",
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
