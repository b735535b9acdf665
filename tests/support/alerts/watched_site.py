"""The stack that is watched: its API, its workers by queue, and a proxy before each dependency."""

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
    """A process that may be killed and started again, at the same address for Prometheus."""

    stack: Stack
    begin: Callable[[], Running]
    running: Running | None = None

    def start(self) -> None:
        self.running = self.begin()

    def kill(self) -> None:
        kill_with_children(self.started)
        self.stack.processes.remove(self.started)
        self.running = None

    @property
    def started(self) -> Running:
        assert self.running is not None
        return self.running

    @contextmanager
    def away(self) -> Iterator[None]:
        """No such process until the block ends."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def hung(self) -> Iterator[None]:
        pause_process(self.started)
        try:
            yield
        finally:
            resume_process(self.started)


@dataclass(frozen=True)
class Site:
    """The stack, and who watches it.

    Attributes:
        workers: by the first of the queues that each serves.
        list_id: whoever joins this list gets a mail.
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
