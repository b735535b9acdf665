"""The end of a worker: on SIGTERM, or because a thread is stuck.

The worker takes no more messages and its work gets a grace to end. Work that has not ended by then
is given back, so that another worker does it and no stop counts as a crash of a job. Celery's own
ways don't do: its soft shutdown neither acknowledges nor sees that all work has ended, and it waits
for threads for as long as they take.
"""

import os
import signal
import threading
import time
from functools import partial
from typing import Any

from celery import signals
from celery.worker import state

from core.counters.shared_counts import forget_counts
from core.logging import get_logger
from workers.context import ProcessContext

log = get_logger(__name__)

# Not 0, so that a supervisor starts the worker again: EX_TEMPFAIL of sysexits.h.
STUCK_EXIT_CODE = 75
_LOOK_EVERY_SECONDS = 0.05
_WATCH_EVERY_SECONDS = 1.0
# For the worker's own end once no work is left.
MAX_END_SECONDS = 10.0


def connect(process: ProcessContext) -> None:
    signals.worker_ready.connect(partial(_begin, process), weak=False)


def _begin(process: ProcessContext, sender: Any, **_: Any) -> None:
    stopping = _Stopping(process, sender)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.begin())
    if process.threads:
        threading.Thread(target=stopping.watch, name="stuck threads", daemon=True).start()


class _Stopping:
    def __init__(self, process: ProcessContext, consumer: Any) -> None:
        self._process = process
        self._consumer = consumer
        self._begun = threading.Event()

    def begin(self, exit_code: int = 0) -> None:
        if not self._begun.is_set():
            self._begun.set()
            # Not in the main thread, which acknowledges meanwhile what ends.
            threading.Thread(target=self._stop, args=(exit_code,), daemon=True).start()

    def watch(self) -> None:
        """In a pool of threads: end the process when one of them is stuck."""
        held = self._process.get().held
        while not self._begun.wait(_WATCH_EVERY_SECONDS):
            if held.is_stuck():
                log.error("worker.thread_stuck")
                self.begin(STUCK_EXIT_CODE)

    def _stop(self, exit_code: int) -> None:
        self._consumer.call_soon(self._take_no_more)
        grace_over = time.monotonic() + self._process.settings.worker_grace
        while state.reserved_requests and time.monotonic() < grace_over:
            time.sleep(_LOOK_EVERY_SECONDS)
        signals.worker_shutting_down.send(
            sender=self._consumer.hostname, sig="SIGTERM", how="Warm", exitcode=exit_code
        )
        if not state.reserved_requests:
            state.should_stop = exit_code
            self._consumer.call_soon(lambda: None)  # so that the loop looks now
            time.sleep(MAX_END_SECONDS)
        elif self._process.threads:
            self._process.get().held.give_back()
        else:
            # Celery ends the pool's processes, and the work in each is given back by itself.
            os.kill(os.getpid(), signal.SIGQUIT)
            time.sleep(MAX_END_SECONDS)
        log.warning("worker.ended_at_once")
        forget_counts()
        os._exit(exit_code)

    def _take_no_more(self) -> None:
        if self._consumer.task_consumer:
            self._consumer.task_consumer.cancel()
