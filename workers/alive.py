"""The alive file, which a worker touches while its event loop turns and its broker responds.

If the worker is suspended, its loop hangs, or its broker is lost, the file gets old. The supervisor
then starts another worker. The file doesn't depend on other servers or on the load: a worker whose
threads are all busy with long work is alive.
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
# The broker responds to a fetch within a second, even without a message.
MAX_SILENCE_SECONDS = 10.0

_stopping = threading.Event()
_started = threading.Event()
# The time at which the event loop last turned without an overdue fetch.
_last_turn = [0.0]


def maintain_alive_file(app: Celery, settings: Settings) -> None:
    if settings.alive_file is not None:
        app.steps["consumer"].add(LoopStep)
        app.pressroom_settings = settings
        signals.worker_shutting_down.connect(lambda **_: _stopping.set(), weak=False)


class LoopStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Notes the turns of the event loop while the consumer is connected."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, consumer: Any) -> None:
        self._timer = consumer.timer.call_repeatedly(TOUCH_EVERY_SECONDS, _note_turn, (consumer,))
        if not _started.is_set():
            _started.set()
            settings = consumer.app.pressroom_settings
            threading.Thread(target=_touch, args=(settings,), name="alive", daemon=True).start()

    def stop(self, _consumer: Any) -> None:
        self._timer.cancel()


def _note_turn(consumer: Any) -> None:
    """Note the turn, unless a fetch is overdue. A queue without room doesn't fetch."""
    now = time.monotonic()
    channels = consumer.connection.transport.cycle._channels
    fetching = [each for each in channels if each._in_poll and each.qos.can_consume()]
    if all(now - each._brpop_sent_at <= MAX_SILENCE_SECONDS for each in fetching):
        _last_turn[0] = now


def _touch(settings: Settings) -> None:
    path: Path | None = settings.alive_file
    assert path is not None
    broker = Broker(settings)
    while True:
        # A stopping worker is alive until it has finished its jobs.
        is_turning = time.monotonic() - _last_turn[0] < MAX_SILENCE_SECONDS
        if (_stopping.is_set() or is_turning) and broker.count_waiting(
            Queue.MAINTENANCE
        ) is not None:
            path.touch()
        time.sleep(TOUCH_EVERY_SECONDS)
