"""What the supervisor has to know about a program it runs."""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


def _always_ready() -> bool:
    return True


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Program:
    """What to run and how to tell that it works.

    Attributes:
        ready: called until it says True, again after each restart. It must not raise, and not
            take longer than about a second: the supervisor waits meanwhile.
        prepare: called before each start, such as for a stale pid file.
        after_end: called after each end, however it came about.
        needs: names of the programs that must be ready before this one is started.
        once: it is expected to end with code 0, and is ready when it has.
        grace: seconds between the stop signal and the kill.
        run_as: user and group id, for what refuses to run as root.
        keep_open: descriptors that it inherits.
        directory: where it runs, when not in the supervisor's own.
    """

    name: str
    argv: tuple[str, ...]
    log: Path
    environment: Mapping[str, str]
    ready: Callable[[], bool] = _always_ready
    prepare: Callable[[], None] = _nothing
    after_end: Callable[[], None] = _nothing
    needs: frozenset[str] = frozenset()
    once: bool = False
    stop_signal: signal.Signals = signal.SIGTERM
    grace: float = 20.0
    stdin: bytes = b""
    run_as: tuple[int, int] | None = None
    keep_open: tuple[int, ...] = ()
    directory: Path | None = None
