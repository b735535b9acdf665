"""The end of an API process that loses no call: it says that it ends before it takes no more."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


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
