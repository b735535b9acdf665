"""What the supervisor has to know about a program it runs."""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

_MAX_LOG_BYTES = 10 * 1024 * 1024
_SHOWN_LOG_BYTES, _SHOWN_LOG_LINES = 8192, 15


@dataclass(frozen=True)
class Program:
    """What to run and how to tell that it works.

    Attributes:
        ready: called until it says True, again after each restart. It must not raise, and not
            take longer than about a second: the supervisor waits meanwhile.
        port: where it listens. A port that was free when it was picked may have gone to another
            program meanwhile, which answers too: ready is who listens there itself.
        alive: asked every few seconds of a ready program: whether there was a sign of life since
            the last time. One without a sign for 30 seconds is killed and started again. It must
            not raise, and not take longer than about a second.
        prepare: called before each start, such as for a stale pid file.
        after_end: called after each end, whatever its cause.
        needs: names of the programs that must be ready before this one is started.
        once: it is expected to end with code 0, and counts as ready when it has.
        grace: seconds between the stop signal and the kill.
        run_as: user and group id, for a program that refuses to run as root.
        keep_open: file descriptors that it inherits.
        directory: where it runs, when not in the supervisor's own directory.
    """

    name: str
    argv: tuple[str, ...]
    log: Path
    environment: Mapping[str, str]
    ready: Callable[[], bool] = lambda: True
    port: int | None = None
    alive: Callable[[], bool] = lambda: True
    prepare: Callable[[], None] = lambda: None
    after_end: Callable[[], None] = lambda: None
    needs: frozenset[str] = frozenset()
    once: bool = False
    stop_signal: signal.Signals = signal.SIGTERM
    grace: float = 20.0
    stdin: bytes = b""
    run_as: tuple[int, int] | None = None
    keep_open: tuple[int, ...] = ()
    directory: Path | None = None

    def rotate_log(self) -> None:
        """Put a log that has grown past its limit aside; one older log is kept."""
        if self.log.exists() and self.log.stat().st_size > _MAX_LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))

    def last_log_lines(self) -> str:
        """The end of the log; empty when there is no log."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - _SHOWN_LOG_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-_SHOWN_LOG_LINES:])
