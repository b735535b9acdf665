"""Keeps the API process serving requests for a while after SIGTERM, so that no request is lost."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from core.logging import get_logger

log = get_logger(__name__)

# The maximum time that a process takes to exit after it has sent its last response.
MAX_CLOSE_SECONDS = 5.0


class Drain:
    """The period of ``seconds`` after SIGTERM in which the API process still serves requests.

    A proxy sends requests to an API process until ``/readyz`` returns 503. If the process exited
    immediately, these requests would fail. During the drain period, ``/readyz`` returns 503, and
    each response closes its connection.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.has_begun = False

    @contextmanager
    def start_on_sigterm(self, at_end: Callable[[], None]) -> Iterator[None]:
        """Start the drain period when the process receives SIGTERM.

        When the drain period ends, call ``at_end`` and the original signal handler. A second
        SIGTERM is ignored, because some process managers signal a process and its parent, which
        forwards the signal.
        """
        loop = asyncio.get_running_loop()
        earlier_handler = signal.getsignal(signal.SIGTERM)

        def end(number: int) -> None:
            at_end()
            if callable(earlier_handler):
                earlier_handler(number, None)

        def begin(number: int) -> None:
            if not self.has_begun:
                self.has_begun = True
                loop.call_later(self._seconds, end, number)

        def handle(number: int, _frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(begin, number)

        is_main = threading.current_thread() is threading.main_thread()
        if is_main:
            signal.signal(signal.SIGTERM, handle)
        try:
            yield
        finally:
            if is_main:
                signal.signal(signal.SIGTERM, earlier_handler)

    def force_exit_after_timeout(self) -> None:
        """Exit the process after ``MAX_CLOSE_SECONDS``, even if a request hangs.

        Call the function only after the last response was sent, because unsent responses would be
        lost.
        """

        def exit_process() -> None:
            time.sleep(MAX_CLOSE_SECONDS)
            log.warning("api.ended_at_once")
            os._exit(0)

        if self.has_begun:
            threading.Thread(target=exit_process, name="force exit", daemon=True).start()
