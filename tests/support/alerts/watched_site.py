"""The stack that Prometheus watches, with a proxy in front of each dependency."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from devstack.harness.proxy import Proxy
from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack
from tests.support.alerts.watching import Watch
from tests.support.stack.signals import kill_with_children, pause_process, resume_process

SEARCH = "/composer/unsplash/photos/search"


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
        """Kill the process, and start it again when the block ends."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the process until the block ends."""
        pause_process(self.get_running())
        try:
            yield
        finally:
            resume_process(self.get_running())


@dataclass(frozen=True)
class Site:
    """A stack, and the Prometheus that watches the stack.

    Attributes:
        workers: maps the first queue of each worker to the worker.
        list_id: a list that mails everyone who joins.
        backups: the folder of the backups.
    """

    stack: Stack
    api: Restartable
    workers: Mapping[str, Restartable]
    proxies: Mapping[str, Proxy]
    watch: Watch
    owner: Owner
    list_id: int
    backups: Path

    def client(self) -> httpx2.Client:
        return self.stack.client(self.owner.key)

    def join(self, client: httpx2.Client) -> None:
        body = {"email": f"{secrets.token_hex(8)}@example.com"}
        client.post(f"/subscriptions/{self.list_id}", json=body)

    def search(self, client: httpx2.Client) -> None:
        client.get(SEARCH, params={"query": secrets.token_hex(8)}, headers={"Prefer": "wait=5"})
