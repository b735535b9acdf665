"""Sends spans to a collector by OTLP over HTTP, behind the work: callers never wait for it.

Spans wait in a bounded queue, which drops the oldest, and a thread sends them. Where the SDK has a
variable of the environment, that counts: ``OTEL_BSP_…`` for the queue, ``OTEL_TRACES_SAMPLER…`` for
how many traces are recorded, ``OTEL_EXPORTER_OTLP_…`` for the collector.
"""

import logging
import os
import socket
from importlib.metadata import version
from threading import Thread

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from core.logging import get_logger
from core.telemetry.collector import names_service
from core.telemetry.tracing import Tracing

log = get_logger(__name__)

# What a process that ends has for the last spans. A collector that hangs keeps it no longer.
MAX_END_SECONDS = 2.0


def open_tracing(process: str) -> Tracing | None:
    """``None`` when the variables are wrong: nothing fails for want of traces."""
    attributes = {} if names_service() else {"service.name": process}
    attributes |= {
        "service.version": version("pressroom"),
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
        # Whatever the operator calls the service.
        "pressroom.process": process,
    }
    # It tells of each try, and of each failure.
    logging.getLogger("opentelemetry.exporter").setLevel("ERROR")
    try:
        # At exit the SDK would wait for half a minute.
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
