"""Sends a canary through each queue, which measures how long messages wait there."""

import threading
from importlib.metadata import version

from celery import Celery, signals
from redis.exceptions import RedisError

from core.queues import Queue
from storage.redis.canaries import Canaries
from storage.resources import Resources
from workers.context import ProcessContext

CANARY = "queue.canary"

_takes_messages = threading.Event()


def register_canary(app: Celery, process: ProcessContext) -> None:
    """Register the task of the canary, which notes its arrival."""
    signals.worker_ready.connect(lambda **_: _takes_messages.set(), weak=False)

    def note_arrival(queue: str, sent: str) -> None:
        Canaries(process.get().resources.redis).record_arrival(queue, sent, version("pressroom"))

    app.task(note_arrival, name=CANARY)


def send_canaries(resources: Resources, queues: list[Queue]) -> None:
    """Send the canaries that are due, once the worker takes messages.

    A worker can take half a minute to start. An earlier canary would count that time as a wait.
    """
    if not _takes_messages.is_set():
        return
    canaries = Canaries(resources.redis)
    for queue in queues:
        try:
            sent = canaries.start_if_due(queue)
        except RedisError:  # the next round tries again
            return
        if sent is not None:
            resources.broker.send(CANARY, queue, {"queue": queue, "sent": sent})
