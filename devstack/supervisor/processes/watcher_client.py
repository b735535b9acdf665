"""The supervisor's side of the watcher: which processes must end when the supervisor does."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_SCRIPT = Path(__file__).with_name("watcher.py")


class Watcher:
    """A small process that outlives the supervisor just long enough to end its children."""

    def __init__(self, keep_open: tuple[int, ...] = ()) -> None:
        self._keep_open = keep_open
        self._watched: dict[int, int] = {}
        self._process, self._pipe = self._launch()

    @property
    def pid(self) -> int:
        return self._process.pid

    def announce_self(self, stop_signal: int) -> None:
        """Enter the calling process: a child does so between fork and exec."""
        self._write(b"+%d %d\n" % (os.getpid(), stop_signal))

    def remember(self, pid: int, stop_signal: int) -> None:
        """Keep a child's entry for a watcher that has to be replaced."""
        self._watched[pid] = stop_signal

    def forget(self, pid: int) -> None:
        self._watched.pop(pid, None)
        self._write(b"-%d\n" % pid)

    def keep_alive(self) -> None:
        """Replace the watcher if it was killed."""
        if self._process.poll() is None:
            return
        os.close(self._pipe)
        self._process, self._pipe = self._launch()
        for pid, stop_signal in self._watched.items():
            self._write(b"+%d %d\n" % (pid, stop_signal))

    def close(self) -> None:
        """End the watcher. It first ends every process that is still entered."""
        os.close(self._pipe)
        self._process.wait()

    def _launch(self) -> tuple[subprocess.Popen[bytes], int]:
        read_end, pipe = os.pipe()
        with os.fdopen(read_end, "rb") as stdin:
            process = subprocess.Popen(  # noqa: S603 - a script of ours
                [sys.executable, "-I", "-S", str(_SCRIPT)],
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=self._keep_open,
            )
        return process, pipe

    def _write(self, line: bytes) -> None:
        # A killed watcher hears nothing; `keep_alive` starts another and tells it everything.
        with suppress(BrokenPipeError):
            os.write(self._pipe, line)
