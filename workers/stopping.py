"""Stops a worker after SIGTERM, or because a thread is stuck.

The worker takes no more messages. Its work has a grace period to end. Work that hasn't ended by
then is given back, so that another worker does it and the stop doesn't count as a crash of the job.

Celery's soft shutdown doesn't suffice. It doesn't acknowledge messages, doesn't notice that all
work has ended, and waits for threads without a bound.
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

# EX_TEMPFAIL of sysexits.h. A code other than 0 makes a supervisor restart the worker.
STUCK_EXIT_CODE = 75
_POLL_SECONDS = 0.05
_WATCH_EVERY_SECONDS = 1.0
# The time for the shutdown of Celery once no work is left.
MAX_END_SECONDS = 10.0


def handle_stop_signals(process: ProcessContext) -> None:
    signals.worker_ready.connect(partial(_install_handlers, process), weak=False)


def _install_handlers(process: ProcessContext, sender: Any, **_: Any) -> None:
    stopper = _Stopper(process, sender)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopper.begin())
    if process.threads:
        threading.Thread(target=stopper.end_if_stuck, name="stuck threads", daemon=True).start()


class _Stopper:
    def __init__(self, process: ProcessContext, consumer: Any) -> None:
        self._process = process
        self._consumer = consumer
        self._has_begun = threading.Event()

    def begin(self, exit_code: int = 0) -> None:
        if not self._has_begun.is_set():
            self._has_begun.set()
            # The main thread must stay free to acknowledge the work that ends meanwhile.
            threading.Thread(target=self._stop, args=(exit_code,), daemon=True).start()

    def end_if_stuck(self) -> None:
        """End the process when a thread of its pool is stuck."""
        held = self._process.get().held
        while not self._has_begun.wait(_WATCH_EVERY_SECONDS):
            if held.is_stuck():
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
            self._consumer.call_soon(lambda: None)  # wakes the loop, which then stops
            time.sleep(MAX_END_SECONDS)
        elif self._process.threads:
            self._process.get().held.give_back()
        else:
            # Celery ends the processes of the pool, and each process gives its work back.
            os.kill(os.getpid(), signal.SIGQUIT)
            time.sleep(MAX_END_SECONDS)
        log.warning("worker.ended_at_once")
        remove_shared_folder()
        os._exit(exit_code)

    def _stop_consuming(self) -> None:
        if self._consumer.task_consumer:
            self._consumer.task_consumer.cancel()
