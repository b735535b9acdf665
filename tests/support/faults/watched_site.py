"""The stack that Prometheus watches, with a proxy in front of each dependency."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devstack.harness.running import Running
from devstack.harness.stack import Stack
from tests.support.faults.faults import ProxiedSite
from tests.support.faults.watching import Watch
from tests.support.stack.signals import kill_with_children, pause_process, resume_process


@dataclass
class Restartable:
    """A process that tests can kill and start again.

    Prometheus finds the restarted process at the same address.
    """

    stack: Stack
    begin: Callable[[], Running]
    running: Running | None = None

    def start(self) -> None:
        self.running = self.begin()

    def kill(self) -> None:
        running = self.get_running()
        kill_with_children(running)
        self.stack.processes.remove(running)
        self.running = None

    def get_running(self) -> Running:
        assert self.running is not None
        return self.running

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self.kill()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        pause_process(self.get_running())
        try:
            yield
        finally:
            resume_process(self.get_running())


@dataclass
class Site(ProxiedSite):
    """A stack, and the Prometheus that watches the stack.

    Attributes:
        workers: maps the first queue of each worker to the worker.
        backups: the folder of the backups.
    """

    api: Restartable
    workers: Mapping[str, Restartable]
    watch: Watch
    backups: Path
