"""The end of an API process that loses no call: it says that it ends before it takes no more."""

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

# Once each call has its answer, to close takes a moment.
MAX_CLOSE_SECONDS = 5.0


class Drain:
    """The time between SIGTERM and the closing of the server.

    A proxy sends calls to this process until a check of ``/readyz`` has told it otherwise, and a
    call that meets a server which has just closed is lost. So everything is served meanwhile,
    while ``/readyz`` says 503 and each answer closes its connection.

    Args:
        seconds: how long it takes.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.has_begun = False

    @contextmanager
    def begun_by_sigterm(self, at_end: Callable[[], None]) -> Iterator[None]:
        """Call ``at_end`` when it is over, and then what handled the signal before.

        A second SIGTERM changes nothing: a process manager may send it to a process and to its
        parent, which passes it on.
        """
        loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGTERM)

        def end(number: int) -> None:
            at_end()
            if callable(before):
                before(number, None)

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
                signal.signal(signal.SIGTERM, before)

    def end_in_time(self) -> None:
        """See that the process, if it was asked to end, does so whatever its threads wait for.

        All that it was asked for is answered. But a call that hangs, to a name server say, can't be
        broken off, and Python would wait for its thread until the process is killed.
        """
        if self.has_begun:
            threading.Thread(target=_end_at_once, name="end in time", daemon=True).start()


def _end_at_once() -> None:
    time.sleep(MAX_CLOSE_SECONDS)
    log.warning("api.ended_at_once")
    os._exit(0)
