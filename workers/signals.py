"""The work at the start of a worker and of its pool processes."""

from functools import partial
from typing import Any

from celery import signals

from core.lanes import Lane
from core.logging import configure_logging, get_logger
from core.process.garbage_collection import end_start
from core.telemetry import spans
from workers.context import ProcessContext

_log = get_logger(__name__)


def connect(process: ProcessContext) -> None:
    signals.setup_logging.connect(lambda **_: configure_logging(process.settings), weak=False)
    signals.worker_before_create_process.connect(_keep_shared)
    signals.worker_process_init.connect(partial(_warm_up, process), weak=False)
    signals.worker_ready.connect(partial(_say_ready, process), weak=False)
    # Of a pool's process, and of the worker itself.
    signals.worker_process_shutdown.connect(_end_spans)
    signals.worker_shutdown.connect(_end_spans)


def _keep_shared(**_: Any) -> None:
    """Before a fork: keep the objects that the child inherits in memory that both share.

    A garbage collection writes to every object that it visits, and so copies its page.
    """
    end_start()


def _warm_up(process: ProcessContext, **_: Any) -> None:
    """In a new pool process: start the converter that the first job would wait for.

    Where processes serve other lanes too, there are more of them than conversions at a time. There
    the first conversion starts a converter, so that none takes memory before it is used.
    """
    context = process.get()
    if context.serves.limits.keys() == {Lane.MEDIA}:
        context.converter.start()


def _end_spans(**_: Any) -> None:
    spans.end()


def _say_ready(process: ProcessContext, **_: Any) -> None:
    end_start()
    served = process.serves.limits
    if Lane.MEDIA in served:
        # Imported here, since workers of other lanes don't need the library behind it.
        from services.media.isolation.confinement import filter_refusal

        if refusal := filter_refusal():
            _log.warning("converter.unfiltered", reason=str(refusal))
    if Lane.REQUEST in served:
        # Not at the first request, which would wait for the writers' libraries.
        process.get().writer().load()
    ready_file = process.settings.ready_file
    if ready_file:
        ready_file.touch()
