"""Waiting that ends at once when a child dies or a signal asks for a stop."""

import os
import select
import signal
import time
from types import FrameType

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# `make` and kills of a process group send the same signal twice within milliseconds.
_SAME_REQUEST_SECONDS = 0.5


class StopRequests:
    """Counts requests to stop. To be made once, in the main thread."""

    def __init__(self) -> None:
        self.count = 0
        self._last = 0.0
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for number in _STOP_SIGNALS:
            signal.signal(number, self._note)
        # A handler must be there for a child's end to reach the wake-up pipe.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def wait(self, timeout: float) -> None:
        """Sleep until a signal comes, at most `timeout` seconds."""
        select.select([self._read_end], [], [], timeout)
        try:
            while os.read(self._read_end, 512):
                pass
        except BlockingIOError:
            return

    @property
    def is_stopping(self) -> bool:
        return self.count > 0

    def is_hurried(self) -> bool:
        return self.count > 1

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.count == 0 or now - self._last > _SAME_REQUEST_SECONDS:
            self.count += 1
        self._last = now
