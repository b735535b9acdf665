"""What the operator asks for by OpenTelemetry's own variables of the environment."""

import os

from core.logging import get_logger

log = get_logger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def is_wanted() -> bool:
    """Whether spans are wanted: a collector is named, and nothing else forbids them.

    An empty variable counts as not set, as the specification has it; the SDK does not see it so.
    """
    for name in [name for name, value in os.environ.items() if name.startswith("OTEL_")]:
        if not os.environ[name].strip():
            del os.environ[name]
    if not any(name in os.environ for name in _ENDPOINTS) or _is_disabled():
        return False
    protocol = next((os.environ[name] for name in _PROTOCOLS if name in os.environ), None)
    if protocol not in (None, "http/protobuf"):
        log.error("telemetry.off", reason=f"{_PROTOCOLS[1]}: only http/protobuf is spoken")
        return False
    return True


def names_service() -> bool:
    """Whether the operator chose a name for this process."""
    pairs = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    in_pairs = any(pair.partition("=")[0].strip() == "service.name" for pair in pairs)
    return in_pairs or "OTEL_SERVICE_NAME" in os.environ


def _is_disabled() -> bool:
    exporters = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",")
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return is_off or "otlp" not in [exporter.strip() for exporter in exporters]
