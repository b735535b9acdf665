"""Prepares a worker and its pool processes in response to Celery's signals."""

import os
from functools import partial
from typing import Any

from celery import signals
from prometheus_client import disable_created_metrics, start_http_server

from core.counters.pool_counts import create_pool_registry
from core.counters.shared_counts import shared_folder
from core.log_output import configure_logging
from core.logging import get_logger
from core.process.garbage_collection import collect_rarely, end_start, freeze_before_fork
from core.queues import Queue
from core.settings import Settings
from core.telemetry import spans
from workers.context import ProcessContext
from workers.task_log import hide_routine_lines

_log = get_logger(__name__)


def prepare_processes(process: ProcessContext) -> None:
    signals.setup_logging.connect(partial(_set_up_log, process), weak=False)
    signals.worker_before_create_process.connect(lambda **_: freeze_before_fork(), weak=False)
    signals.worker_process_init.connect(lambda **_: collect_rarely(), weak=False)
    signals.worker_process_init.connect(partial(_warm_up, process), weak=False)
    signals.worker_ready.connect(partial(_announce_ready, process), weak=False)
    # `worker_process_shutdown` is sent in each pool process, and `worker_shutdown` in the main
    # process.
    for shutdown in (signals.worker_process_shutdown, signals.worker_shutdown):
        shutdown.connect(lambda **_: spans.stop_tracing(), weak=False)


def _set_up_log(process: ProcessContext, **_: Any) -> None:
    configure_logging(process.settings)
    hide_routine_lines()


def _warm_up(process: ProcessContext, **_: Any) -> None:
    """Start the image converter when a pool process starts, so that the first job needn't wait.

    A worker of several queues starts its converters only when needed, because they take memory.
    """
    context = process.get()
    if context.serves.limits.keys() == {Queue.MEDIA}:
        # Import the module late, because only workers of the media queue need the imaging library.
        from services.attachments import processing

        context.resources.shared(processing.create_converter).start()


def _announce_ready(process: ProcessContext, **_: Any) -> None:
    end_start()
    served = process.serves.limits
    if Queue.MEDIA in served:
        # Import the module late, because only workers of the media queue start an image converter.
        from core.process.confinement import filter_error

        if error := filter_error():
            _log.warning("converter.unfiltered", reason=str(error))
    if Queue.REQUEST in served:
        # Load the writers' libraries at startup, so that no API request waits for them.
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
        server, _thread = start_http_server(int(port), host, create_pool_registry(shared_folder()))
    except (OSError, OverflowError) as error:
        # Continue without a metrics server, because jobs don't need metrics.
        _log.warning("metrics.not_served", address=address, reason=str(error))
        return
    # Close the metrics socket in pool processes, because it would block the port after the worker's
    # exit.
    os.register_at_fork(after_in_child=server.socket.close)
