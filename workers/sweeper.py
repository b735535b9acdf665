"""The sweep in a worker's main process, each second from its start to its shutdown."""

import os
import threading
from typing import Any

from celery import Celery, bootsteps, signals

from core.logging import get_logger
from core.settings import load_settings
from services.jobs import sweep
from storage.resources import Resources, open_resources

log = get_logger(__name__)

SWEEP_EVERY_SECONDS = 1.0
# A round takes milliseconds; one that hangs on a server must not keep the pool from its repair.
_MAX_FORK_WAIT_SECONDS = 5.0

_stopping = threading.Event()
_round = threading.Lock()


def connect(app: Celery) -> None:
    app.steps["worker"].add(SweepStep)
    signals.worker_shutting_down.connect(_stop)
    # A pool process forked in the middle of a round would inherit locks that no thread releases.
    os.register_at_fork(before=_await_round, after_in_parent=_go_on, after_in_child=_go_on)


class SweepStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Begins once the pool stands and before the broker is connected: what keeps a worker from
    connecting, such as a broker filled by queues, may be what the sweep mends."""

    requires = ("celery.worker.components:Pool",)

    def start(self, _worker: Any) -> None:
        threading.Thread(target=_sweep_until_stopped, name="sweep", daemon=True).start()


def _stop(**_: Any) -> None:
    _stopping.set()


def _sweep_until_stopped() -> None:
    resources = open_resources(load_settings(), concurrency=1, name="sweep")
    while not _stopping.wait(SWEEP_EVERY_SECONDS):
        with _round:
            _sweep_once(resources)
    resources.close()


def _sweep_once(resources: Resources) -> None:
    try:
        sweep.sweep(resources)
    except Exception as error:  # noqa: BLE001 - whatever this round met, the next one must come
        log.warning("sweep.failed", reason=f"{type(error).__name__}: {error}")


_waited: list[bool] = []


def _await_round() -> None:
    _waited.append(_round.acquire(timeout=_MAX_FORK_WAIT_SECONDS))


def _go_on() -> None:
    if _waited.pop():
        _round.release()
