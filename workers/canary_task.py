"""The task that sends canaries through the queues, to measure how long messages wait."""

import threading
from contextlib import suppress
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
    signals.worker_ready.connect(lambda **_: _takes_messages.set(), weak=False)

    def record_arrival(queue: str, sent: str) -> None:
        Canaries(process.get().resources.redis).record_arrival(queue, sent, version("pressroom"))

    app.task(record_arrival, name=CANARY)


def answer_canary(resources: Resources, queue: Queue) -> None:
    """Answer the canary in transit before a process takes the next job without a message."""
    # The canaries only measure delays, so they must not stop the work while Redis is unavailable.
    with suppress(RedisError):
        Canaries(resources.redis).answer(queue, version("pressroom"))


def send_canaries(resources: Resources, queues: list[Queue]) -> None:
    """Send the due canaries, unless the worker is still starting.

    A startup can take half a minute, which a canary would measure instead of the queue's delay.
    """
    if not _takes_messages.is_set():
        return
    canaries = Canaries(resources.redis)
    for queue in queues:
        try:
            sent = canaries.start_if_due(queue)
        except RedisError:  # Skip the canaries, because the next sweep sends them.
            return
        if sent is not None:
            resources.broker.send(CANARY, queue, {"queue": queue, "sent": sent})
