"""Touches a worker's alive file while the worker's event loop runs and the broker responds.

The supervisor restarts a worker whose alive file is outdated. A worker touches its alive file even
if the worker is busy or the database is unreachable.
"""

import threading
import time
from pathlib import Path
from typing import Any

from celery import Celery, bootsteps, signals

from core.queues import Queue
from core.settings import Settings
from storage.broker import Broker

TOUCH_EVERY_SECONDS = 1.0
# The maximum response time of the broker when a worker fetches messages.
MAX_SILENCE_SECONDS = 10.0

_stopping = threading.Event()
_started = threading.Event()
# The monotonic time of the event loop's last iteration. While a response of the broker is overdue,
# iterations of the event loop aren't recorded.
_last_iteration = [0.0]


def maintain_alive_file(app: Celery, settings: Settings) -> None:
    if settings.alive_file is not None:
        app.steps["consumer"].add(LoopStep)
        app.pressroom_settings = settings
        signals.worker_shutting_down.connect(lambda **_: _stopping.set(), weak=False)


class LoopStep(bootsteps.StartStopStep):  # type: ignore[misc]
    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, consumer: Any) -> None:
        self._timer = consumer.timer.call_repeatedly(
            TOUCH_EVERY_SECONDS, _record_iteration, (consumer,)
        )
        if not _started.is_set():
            _started.set()
            settings = consumer.app.pressroom_settings
            threading.Thread(target=_touch, args=(settings,), name="alive", daemon=True).start()

    def stop(self, _consumer: Any) -> None:
        self._timer.cancel()


def _record_iteration(consumer: Any) -> None:
    """Record an iteration of the event loop, unless a response of the broker is overdue.

    A worker fetches no messages from a queue that has reached its limit of concurrent jobs.
    """
    now = time.monotonic()
    channels = consumer.connection.transport.cycle._channels
    fetching = [each for each in channels if each._in_poll and each.qos.can_consume()]
    if all(now - each._brpop_sent_at <= MAX_SILENCE_SECONDS for each in fetching):
        _last_iteration[0] = now


def _touch(settings: Settings) -> None:
    path: Path | None = settings.alive_file
    assert path is not None
    broker = Broker(settings)
    while True:
        # A stopping worker counts as alive until its jobs have ended.
        is_running = time.monotonic() - _last_iteration[0] < MAX_SILENCE_SECONDS
        is_alive = _stopping.is_set() or is_running
        if is_alive and broker.count_waiting(Queue.MAINTENANCE) is not None:
            path.touch()
        time.sleep(TOUCH_EVERY_SECONDS)
