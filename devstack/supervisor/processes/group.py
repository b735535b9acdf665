"""All children of a supervisor: it starts them when what they need is ready, starts them again, and
stops them in stages."""

import signal
import time
from collections.abc import Callable, Iterable, Sequence

from devstack.supervisor.errors import StackError
from devstack.supervisor.processes.program import Program
from devstack.supervisor.processes.supervised_child import Child
from devstack.supervisor.processes.watcher_client import Watcher

_MAX_START_ATTEMPTS = 3
_HURRIED_GRACE_SECONDS = 2.0


class Group:
    """The children of one supervisor.

    `say` gets a sentence for each end that was not asked for, and for each return after one.
    """

    def __init__(
        self, programs: Iterable[Program], watcher: Watcher, say: Callable[[str], None]
    ) -> None:
        self.children = [Child(program, watcher) for program in programs]
        self._by_name = {child.name: child for child in self.children}
        self._watcher = watcher
        self._say = say

    def __getitem__(self, name: str) -> Child:
        return self._by_name[name]

    @property
    def is_ready(self) -> bool:
        return all(child.is_usable for child in self.children)

    @property
    def pids(self) -> dict[str, int]:
        return {child.name: child.pid for child in self.children if child.pid is not None}

    def tick(self) -> None:
        """Look at every child once: bury the ended, start what is due, notice the ready."""
        self._watcher.keep_alive()
        for child in self.children:
            failures = child.failures
            child.notice_end()
            needed = (self._by_name.get(name) for name in child.program.needs)
            if child.is_due and all(each is None or each.is_usable for each in needed):
                child.start()
            if child.failures > failures:
                delay = max(child.start_again_at - time.monotonic(), 0)
                self._say(
                    f"{child.name} {child.last_end}; starting it again in {delay:.1f} s. "
                    f"Its log: {child.program.log}"
                )
            if child.notice_stall():
                self._say(f"{child.name} has given no sign of life for too long; killing it.")
            if child.notice_ready() and child.failures:
                self._say(f"{child.name} is back (pid {child.pid}).")

    def check_start(self) -> None:
        """Raise StackError once a child has failed too often without ever having worked."""
        for child in self.children:
            if child.failures >= _MAX_START_ATTEMPTS and not child.was_ready:
                raise StackError(
                    f"{child.name} does not start: it {child.last_end}.\n"
                    f"The end of {child.program.log}:\n{child.program.last_log_lines()}"
                )

    def not_ready(self) -> str:
        return ", ".join(child.name for child in self.children if not child.is_usable)

    def stop(
        self, stages: Sequence[Sequence[str]], is_hurried: Callable[[], bool] = lambda: False
    ) -> None:
        """Stop stage after stage; kill a child that outlasts its grace."""
        for names in stages:
            stopping = [self._by_name[name] for name in names if name in self._by_name]
            for child in stopping:
                child.send(child.program.stop_signal)
            began = time.monotonic()
            hurried_at: float | None = None
            while stopping := [child for child in stopping if not child.notice_stopped()]:
                now = time.monotonic()
                if hurried_at is None and is_hurried():
                    hurried_at = now
                is_hurry_over = hurried_at is not None and now - hurried_at > _HURRIED_GRACE_SECONDS
                for child in stopping:
                    if is_hurry_over or now - began > child.program.grace:
                        child.send(signal.SIGKILL)
                time.sleep(0.02)
