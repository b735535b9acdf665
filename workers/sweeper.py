"""Runs the sweep every second in a worker's main process.

The sweep finds lost jobs, sends lost messages again, and starts due maintenance.
"""

import os
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from celery import Celery, bootsteps, signals

from core.logging import get_logger
from core.queues import Queue
from core.settings.process_settings import load_worker_settings
from services.jobs import maintenance
from services.jobs.lost_jobs import DatabaseWatch
from services.jobs.scan_paces import SweepPaces
from services.jobs.sweep import sweep_jobs
from services.webhooks.waking import EndpointWaker
from storage.resources import Resources, open_resources
from storage.task_messages import queue_name
from workers.canary_task import send_canaries

log = get_logger(__name__)

_Step = Callable[[Resources], object]

SWEEP_EVERY_SECONDS = 1.0
# Rare steps of the sweep run only in every fifth round. Canaries are due only every ten seconds, so
# checking for them in every round would be wasteful.
_RARE_STEP_ROUNDS = 5
# The maximum time for which a fork waits for the end of a sweep round. A sweep round takes
# milliseconds. The worker normally forks between two sweep rounds. Even if a sweep round hangs, the
# worker forks a pool process after this time.
_MAX_FORK_WAIT_SECONDS = 5.0

_stopping = threading.Event()
_round_lock = threading.Lock()
# During a fork of the worker process, `_lock_results` records whether the forking thread has
# acquired `_round_lock`.
_lock_results: list[bool] = []


def start_sweep_with(app: Celery) -> None:
    app.steps["worker"].add(SweepStep)
    signals.worker_shutting_down.connect(lambda **_: _stopping.set(), weak=False)
    # Delay a fork until the sweep round ends, because a process forked during a round would inherit
    # locks that nobody releases.
    os.register_at_fork(
        before=lambda: _lock_results.append(_round_lock.acquire(timeout=_MAX_FORK_WAIT_SECONDS)),
        after_in_parent=_release_lock,
        after_in_child=_release_lock,
    )


class SweepStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """A Celery boot step that starts the sweep after the pool, but before the broker connection.

    The sweep must run even without a broker connection, for example if the broker's memory is full.
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
    frequent_steps: list[_Step] = [
        partial(sweep_jobs, watch=watch, paces=SweepPaces()),
        maintenance.send_due_tasks,
    ]
    wake_due = EndpointWaker().wake_due
    if Queue.WEBHOOKS in queues:
        frequent_steps.append(wake_due)
    all_steps: list[_Step] = [*frequent_steps, partial(send_canaries, queues=queues)]
    if Queue.WEBHOOKS not in queues:
        # Workers without the webhook queue also enqueue due webhook jobs, so that metrics show them
        # even if no worker serves the queue.
        all_steps.append(wake_due)
    for number in count():
        if _stopping.wait(SWEEP_EVERY_SECONDS):
            break
        with _round_lock:
            for step in frequent_steps if number % _RARE_STEP_ROUNDS else all_steps:
                try:
                    step(resources)
                except Exception as error:  # noqa: BLE001 - a failed step must not stop other steps
                    log.warning("sweep.failed", reason=f"{type(error).__name__}: {error}")
    resources.close()


def _release_lock() -> None:
    if _lock_results.pop():
        _round_lock.release()
