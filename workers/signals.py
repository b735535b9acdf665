"""The work at the start of a worker and of its pool processes."""

import os
from functools import partial
from typing import Any

from celery import signals
from prometheus_client import disable_created_metrics, start_http_server

from core.counters.pool_counts import pool_registry
from core.counters.shared_counts import shared_folder
from core.log_output import configure_logging
from core.logging import get_logger
from core.process.garbage_collection import end_start, share
from core.queues import Queue
from core.settings import Settings
from core.telemetry import spans
from workers.context import ProcessContext

_log = get_logger(__name__)


def connect(process: ProcessContext) -> None:
    signals.setup_logging.connect(lambda **_: configure_logging(process.settings), weak=False)
    signals.worker_before_create_process.connect(lambda **_: share(), weak=False)
    signals.worker_process_init.connect(partial(_warm_up, process), weak=False)
    signals.worker_ready.connect(partial(_say_ready, process), weak=False)
    # These end a pool's process, and the worker itself.
    for end in (signals.worker_process_shutdown, signals.worker_shutdown):
        end.connect(lambda **_: spans.stop_tracing(), weak=False)


def _warm_up(process: ProcessContext, **_: Any) -> None:
    """In a new pool process: start the converter that the first job would wait for.

    Where processes serve other queues too, there are more of them than conversions at a time. There
    the first conversion starts a converter, so that none takes memory before it is used.
    """
    context = process.get()
    if context.serves.limits.keys() == {Queue.MEDIA}:
        # Imported here, since workers of other queues don't need the library behind it.
        from services.attachments import processing

        context.resources.shared(processing.create_converter).start()


def _say_ready(process: ProcessContext, **_: Any) -> None:
    end_start()
    served = process.serves.limits
    if Queue.MEDIA in served:
        # Imported here, since workers of other queues don't need the library behind it.
        from core.process.confinement import filter_error

        if error := filter_error():
            _log.warning("converter.unfiltered", reason=str(error))
    if Queue.REQUEST in served:
        # Not at the first request, which would wait for the writers' libraries.
        from services.composer.writers import MetadataWriter

        process.get().resources.shared(MetadataWriter.of_process).load()
    ready_file = process.settings.ready_file
    if ready_file:
        ready_file.touch()


def serve_metrics(settings: Settings) -> None:
    if settings.worker_metrics_address is not None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        serve = partial(_serve, settings.worker_metrics_address)
        signals.worker_ready.connect(serve, weak=False)


def _serve(address: str, **_: Any) -> None:
    host, port = address.rsplit(":", 1)
    try:
        server, _thread = start_http_server(int(port), host, pool_registry(shared_folder()))
    except (OSError, OverflowError) as error:
        # The work matters more than its figures.
        _log.warning("metrics.not_served", address=address, reason=str(error))
        return
    # A process of the pool would keep the port after its worker has gone.
    os.register_at_fork(after_in_child=server.socket.close)
