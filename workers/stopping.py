"""Stops a worker after SIGTERM, or when a thread is stuck.

A stopping worker takes no more messages, and gives its jobs a grace period to end. Jobs that don't
end within the grace period are requeued for another worker. Requeuing doesn't count as a crash of
the job.

Pressroom doesn't use Celery's soft shutdown, which would wait for threads forever. A soft shutdown
acknowledges no messages, and doesn't notice when all jobs have ended.
"""

import os
import signal
import threading
import time
from functools import partial
from typing import Any

from celery import signals
from celery.worker import state

from core.counters.shared_counts import remove_shared_folder
from core.logging import get_logger
from workers.context import ProcessContext

log = get_logger(__name__)

# The exit code of a worker with a stuck thread, which is EX_TEMPFAIL in sysexits.h. A supervisor
# restarts workers whose exit code isn't 0.
STUCK_EXIT_CODE = 75
_POLL_SECONDS = 0.05
_WATCH_EVERY_SECONDS = 1.0
# The maximum duration of Celery's shutdown after the last job.
MAX_SHUTDOWN_SECONDS = 10.0


def handle_stop_signals(process: ProcessContext) -> None:
    signals.worker_ready.connect(partial(_install_handlers, process), weak=False)


def _install_handlers(process: ProcessContext, sender: Any, **_: Any) -> None:
    stopper = _Stopper(process, sender)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopper.begin())
    if process.has_threads:
        threading.Thread(target=stopper.stop_if_stuck, name="stuck threads", daemon=True).start()


class _Stopper:
    def __init__(self, process: ProcessContext, consumer: Any) -> None:
        self._process = process
        self._consumer = consumer
        self._has_begun = threading.Event()

    def begin(self, exit_code: int = 0) -> None:
        if not self._has_begun.is_set():
            self._has_begun.set()
            # Stop the worker in a separate thread, because the main thread must acknowledge
            # messages.
            threading.Thread(target=self._stop, args=(exit_code,), daemon=True).start()

    def stop_if_stuck(self) -> None:
        in_flight_work = self._process.get().in_flight_work
        while not self._has_begun.wait(_WATCH_EVERY_SECONDS):
            if in_flight_work.is_stuck():
                log.error("worker.thread_stuck")
                self.begin(STUCK_EXIT_CODE)

    def _stop(self, exit_code: int) -> None:
        self._consumer.call_soon(self._stop_consuming)
        deadline = time.monotonic() + self._process.settings.worker_grace
        while state.reserved_requests and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        signals.worker_shutting_down.send(
            sender=self._consumer.hostname, sig="SIGTERM", how="Warm", exitcode=exit_code
        )
        if not state.reserved_requests:
            state.should_stop = exit_code
            # Wake the event loop, so that it notices that the worker must stop.
            self._consumer.call_soon(lambda: None)
            time.sleep(MAX_SHUTDOWN_SECONDS)
        elif self._process.has_threads:
            self._process.get().in_flight_work.give_back()
        else:
            # After SIGQUIT, Celery ends the pool processes, which requeue their jobs.
            os.kill(os.getpid(), signal.SIGQUIT)
            time.sleep(MAX_SHUTDOWN_SECONDS)
        log.warning("worker.ended_at_once")
        remove_shared_folder()
        os._exit(exit_code)

    def _stop_consuming(self) -> None:
        if self._consumer.task_consumer:
            self._consumer.task_consumer.cancel()
