"""The alive file: a worker touches it while its event loop turns and its broker answers.

It says nothing of other servers, nor of how busy the queue is: a worker whose threads are all in
long work is alive. A worker that is stopped, whose loop hangs, or that has lost its broker lets the
file get old, and whoever supervises it starts another one.
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
# A fetch of the next message is answered after a second, with a message or without.
MAX_SILENCE_SECONDS = 10.0

_stopping = threading.Event()
_started = threading.Event()
# The time of the last turn of the event loop in which no fetch was overdue.
_last_turn = [0.0]


def connect(app: Celery, settings: Settings) -> None:
    if settings.alive_file is not None:
        app.steps["consumer"].add(LoopStep)
        app.pressroom_settings = settings
        signals.worker_shutting_down.connect(lambda **_: _stopping.set(), weak=False)


class LoopStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Notes the turns of the event loop for as long as the consumer is connected."""

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
    """Note a turn in which the broker owes no answer. A queue without room is owed none."""
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
        # A worker that is told to end is alive until it has ended its jobs.
        turns = time.monotonic() - _last_turn[0] < MAX_SILENCE_SECONDS
        if (_stopping.is_set() or turns) and broker.waiting(Queue.MAINTENANCE) is not None:
            path.touch()
        time.sleep(TOUCH_EVERY_SECONDS)
