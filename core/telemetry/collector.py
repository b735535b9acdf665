"""Reads the operator's tracing options from the environment variables of OpenTelemetry."""

import os

from core.logging import get_logger

log = get_logger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def is_tracing_enabled() -> bool:
    """Return whether the environment variables configure a collector and don't disable tracing.

    The function deletes empty ``OTEL_`` variables, because OpenTelemetry's SDK doesn't treat an
    empty variable as unset.
    """
    for name in [name for name, value in os.environ.items() if name.startswith("OTEL_")]:
        if not os.environ[name].strip():
            del os.environ[name]
    exporters = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",")
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if is_off or "otlp" not in [exporter.strip() for exporter in exporters]:
        return False
    if not any(name in os.environ for name in _ENDPOINTS):
        return False
    protocol = next((os.environ[name] for name in _PROTOCOLS if name in os.environ), None)
    if protocol not in (None, "http/protobuf"):
        log.error("telemetry.off", reason=f"{_PROTOCOLS[1]}: only http/protobuf is spoken")
        return False
    return True


def has_service_name() -> bool:
    pairs = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    in_pairs = any(pair.partition("=")[0].strip() == "service.name" for pair in pairs)
    return in_pairs or "OTEL_SERVICE_NAME" in os.environ
