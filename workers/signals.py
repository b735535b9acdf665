"""What happens at turns of a worker's life, beside its tasks."""

import threading
from typing import Any

from celery import signals

from core.lanes import Lane
from core.logging import configure_logging, get_logger
from core.settings import load_settings
from services.jobs import sweep
from storage.resources import Resources, open_resources
from workers import process

log = get_logger(__name__)

SWEEP_EVERY_SECONDS = 1.0

_stopping = threading.Event()


def connect() -> None:
    signals.setup_logging.connect(_set_up_logging)
    signals.worker_process_init.connect(_warm_up)
    signals.worker_ready.connect(_start_sweeping)
    signals.worker_shutting_down.connect(_stop_sweeping)


def _set_up_logging(**_: Any) -> None:
    configure_logging(load_settings())


def _warm_up(**_: Any) -> None:
    """In a new pool process: connect before the first job waits for it."""
    process.resources()
    if process.lane() is Lane.MEDIA:
        process.converter().start()


def _start_sweeping(**_: Any) -> None:
    """In the worker's main process: sweep each second until shutdown, and say it is ready."""
    thread = threading.Thread(target=_sweep_until_stopped, name="sweep", daemon=True)
    thread.start()
    ready_file = load_settings().ready_file
    if ready_file:
        ready_file.touch()


def _stop_sweeping(**_: Any) -> None:
    _stopping.set()


def _sweep_until_stopped() -> None:
    resources = open_resources(load_settings(), concurrency=1, name="sweep")
    while not _stopping.wait(SWEEP_EVERY_SECONDS):
        _sweep_once(resources)
    resources.close()


def _sweep_once(resources: Resources) -> None:
    try:
        sweep.sweep(resources)
    except Exception as error:  # noqa: BLE001 - whatever this round met, the next one must come
        log.warning("sweep.failed", reason=f"{type(error).__name__}: {error}")
