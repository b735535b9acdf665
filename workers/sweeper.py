"""The sweep in a worker's main process, each second from its start to its shutdown."""

import os
import threading
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from itertools import count
from typing import Any

from celery import Celery, bootsteps, signals
from redis.exceptions import RedisError

from core.logging import get_logger
from core.queues import Queue
from core.settings.process_settings import load_worker_settings
from services.jobs import maintenance
from services.jobs.lost_jobs import DatabaseWatch
from services.jobs.scan_paces import SweepPaces
from services.jobs.sweep import sweep_jobs
from services.webhooks.waking import EndpointWaker
from storage.redis.canaries import Canaries
from storage.resources import Resources, open_resources
from storage.task_messages import queue_name
from workers.context import ProcessContext

log = get_logger(__name__)

_Step = Callable[[Resources], object]

SWEEP_EVERY_SECONDS = 1.0
# These steps are done now and then. Canaries come every ten seconds: to ask for each of them each
# second would be most of the work.
_EVERY_ROUNDS = 5
# A round takes milliseconds. A round that hangs on a server must not stop the pool from forking.
_MAX_FORK_WAIT_SECONDS = 5.0

_stopping = threading.Event()
_takes_messages = threading.Event()
_round = threading.Lock()
_waited: list[bool] = []


def connect(app: Celery) -> None:
    app.steps["worker"].add(SweepStep)
    signals.worker_shutting_down.connect(lambda **_: _stopping.set(), weak=False)
    signals.worker_ready.connect(lambda **_: _takes_messages.set(), weak=False)
    # A pool process forked during a round would inherit locks that no thread releases.
    os.register_at_fork(
        before=lambda: _waited.append(_round.acquire(timeout=_MAX_FORK_WAIT_SECONDS)),
        after_in_parent=_go_on,
        after_in_child=_go_on,
    )


class SweepStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Starts the sweep after the pool and before the connection to the broker.

    The sweep may mend the very fault that keeps a worker from connecting, such as a broker that is
    full of messages.
    """

    requires = ("celery.worker.components:Pool",)

    def start(self, worker: Any) -> None:
        served = worker.app.amqp.queues.consume_from
        queues = [queue for queue in Queue if queue_name(queue) in served]
        threading.Thread(
            target=_sweep_until_stopped, args=(queues,), name="sweep", daemon=True
        ).start()


def _sweep_until_stopped(queues: list[Queue]) -> None:
    resources = open_resources(load_worker_settings(queues), concurrency=1, name="sweep")
    watch = DatabaseWatch()
    each_second: list[_Step] = [
        partial(sweep_jobs, watch=watch, paces=SweepPaces()),
        maintenance.send_due,
    ]
    wake_due = EndpointWaker().wake_due
    if Queue.WEBHOOKS in queues:
        each_second.append(wake_due)
    now_and_then: list[_Step] = [*each_second, partial(send_canaries, queues=queues)]
    if Queue.WEBHOOKS not in queues:
        # Where no worker of that queue is left, the figures show the jobs that wait for one.
        now_and_then.append(wake_due)
    for number in count():
        if _stopping.wait(SWEEP_EVERY_SECONDS):
            break
        with _round:
            for step in each_second if number % _EVERY_ROUNDS else now_and_then:
                try:
                    step(resources)
                except Exception as error:  # noqa: BLE001 - what follows must come in any case
                    log.warning("sweep.failed", reason=f"{type(error).__name__}: {error}")
    resources.close()


def _go_on() -> None:
    if _waited.pop():
        _round.release()


CANARY = "queue.canary"


def bind_canary(app: Celery, process: ProcessContext) -> None:
    def arrive(queue: str, sent: str) -> None:
        Canaries(process.get().resources.redis).arrived(queue, sent, version("pressroom"))

    app.task(arrive, name=CANARY)


def send_canaries(resources: Resources, queues: list[Queue]) -> None:
    # Otherwise a start that takes half a minute would look like a queue that takes as long.
    if not _takes_messages.is_set():
        return
    canaries = Canaries(resources.redis)
    for queue in queues:
        try:
            sent = canaries.due(queue)
        except RedisError:  # the next round asks again
            return
        if sent is not None:
            resources.broker.send(CANARY, queue, {"queue": queue, "sent": sent})
