"""What happens at turns of a worker's life, beside its tasks."""

import gc
from functools import partial
from typing import Any

from celery import signals

from core.lanes import Lane
from core.logging import configure_logging
from core.settings import load_settings
from workers.context import ProcessContext


def connect(process: ProcessContext) -> None:
    signals.setup_logging.connect(_set_up_logging)
    signals.worker_before_create_process.connect(_keep_shared)
    signals.worker_process_init.connect(partial(_warm_up, process), weak=False)
    signals.worker_ready.connect(partial(_say_ready, process), weak=False)


def _set_up_logging(**_: Any) -> None:
    configure_logging(load_settings())


def _keep_shared(**_: Any) -> None:
    """Before a fork: what the child inherits stays in memory that both share.

    Looking for garbage writes to every object that it looks at, and so copies its page.
    """
    gc.collect()
    gc.freeze()


def _warm_up(process: ProcessContext, **_: Any) -> None:
    """In a new pool process: make what the first job would wait for."""
    context = process.get()
    if context.lane is Lane.MEDIA:
        context.converter.start()


def _say_ready(process: ProcessContext, **_: Any) -> None:
    if process.lane is Lane.IO:
        # Here and not at the first request, which would wait for the writers' libraries.
        process.get().writer()
    ready_file = load_settings().ready_file
    if ready_file:
        ready_file.touch()
