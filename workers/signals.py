"""What happens at turns of a worker's life, beside its tasks."""

import gc
from typing import Any

from celery import signals

from core.lanes import Lane
from core.logging import configure_logging
from core.settings import load_settings
from workers import context


def connect() -> None:
    signals.setup_logging.connect(_set_up_logging)
    signals.worker_before_create_process.connect(_keep_shared)
    signals.worker_process_init.connect(_warm_up)
    signals.worker_ready.connect(_say_ready)


def _set_up_logging(**_: Any) -> None:
    configure_logging(load_settings())


def _keep_shared(**_: Any) -> None:
    """Before a fork: what the child inherits stays in memory that both share.

    Looking for garbage writes to every object that it looks at, and so copies its page.
    """
    gc.collect()
    gc.freeze()


def _warm_up(**_: Any) -> None:
    """In a new pool process: connect before the first job waits for it."""
    context.resources()
    if context.lane() is Lane.MEDIA:
        context.converter().start()


def _say_ready(**_: Any) -> None:
    if context.lane() is Lane.IO:
        # Here and not at the first request, which would wait for the writers' libraries.
        context.writing()
    ready_file = load_settings().ready_file
    if ready_file:
        ready_file.touch()
