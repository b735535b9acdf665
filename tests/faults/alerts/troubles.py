"""What goes wrong, and which alert is to say so."""

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.contract.replies import send
from tests.faults.alerts.watching import Watch
from tests.faults.conftest import kill_all
from tests.faults.proxy import Proxy
from tests.hooks import happen, hooked, let_pauses_pass, new_endpoint
from tests.ports import free_port
from tests.stack import Owner, Running, Stack, eventually

SEARCH = "/composer/unsplash/photos/search"
_PAUSE_SECONDS = 0.3


@dataclass
class Worker:
    """A worker that may be killed and started again, at the same address for Prometheus."""

    stack: Stack
    lanes: tuple[str, ...]
    port: int
    environment: dict[str, str]
    running: Running | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        more = {**self.environment, "PRESSROOM_WORKER_METRICS_ADDRESS": self.address}
        self.running = self.stack.start_worker(*self.lanes, concurrency=2, **more)

    def kill(self) -> None:
        assert self.running is not None
        kill_all(self.running)
        self.stack.processes.remove(self.running)
        self.running = None


@dataclass(frozen=True)
class Site:
    """The stack, a proxy before each dependency, its workers by lane, and who watches it."""

    stack: Stack
    proxies: dict[str, Proxy]
    workers: dict[str, Worker]
    watch: Watch
    owner: Owner
    # Whoever joins it gets a mail.
    list_id: int
    backups: Path

    def client(self) -> httpx.Client:
        return self.stack.client(self.owner.key)

    def join(self, client: httpx.Client) -> None:
        body = {"email": f"{secrets.token_hex(8)}@example.com"}
        client.post(f"/subscriptions/{self.list_id}", json=body)

    def search(self, client: httpx.Client) -> None:
        client.get(SEARCH, params={"query": secrets.token_hex(8)}, headers={"Prefer": "wait=5"})


@dataclass(frozen=True)
class Trouble:
    """Attributes:
    begin: brings it about while the block lasts.
    alert: which is to fire meanwhile, with these labels, and to clear afterwards.
    calls: what callers do during it and after it, again and again.
    """

    name: str
    begin: Callable[[Site], AbstractContextManager[None]]
    alert: str
    labels: Mapping[str, str] = field(default_factory=dict)
    calls: Callable[[Site, httpx.Client], None] | None = None


def _of(
    proxy: str, begin: Callable[[Proxy], None]
) -> Callable[[Site], AbstractContextManager[None]]:
    @contextmanager
    def during(site: Site) -> Iterator[None]:
        begin(site.proxies[proxy])
        try:
            yield
        finally:
            site.proxies[proxy].resume()

    return during


@contextmanager
def _lane_without_worker(site: Site) -> Iterator[None]:
    site.workers["media"].kill()
    with site.client() as client:
        assert send(client, prefer="respond-async").status_code == 202
    yield
    site.workers["media"].start()


@contextmanager
def _worker_killed_at_work(site: Site) -> Iterator[None]:
    """Another worker sweeps what it held."""
    site.proxies["mail"].hang()
    with ExitStack() as left, site.client() as client:
        left.callback(site.proxies["mail"].resume)
        site.join(client)
        running = "SELECT 1 FROM jobs WHERE lane = 'mail' AND status = 'running'"
        eventually(lambda: site.stack.query(running), what="a mail that is under way")
        site.workers["mail"].kill()
    yield
    site.workers["mail"].start()


@contextmanager
def _receiver_down(site: Site) -> Iterator[None]:
    port = free_port()
    with site.client() as client:
        endpoint = new_endpoint(client, f"http://127.0.0.1:{port}/hook")
        happen(site.stack, site.owner)
        yield
        with hooked(port) as receiver:
            let_pauses_pass(site.stack, endpoint["id"])
            eventually(lambda: receiver.hooks, within=60, what="the delivery")
            # Answered before it is written down.
            pending = "SELECT 1 FROM webhook_deliveries WHERE status = 'pending'"
            eventually(lambda: not site.stack.query(pending), what="the end of the delivery")
        client.delete(f"/webhook-endpoints/{endpoint['id']}")


@contextmanager
def _backup_fails(site: Site) -> Iterator[None]:
    """The place of the backups is no folder."""
    site.backups.rmdir()
    site.backups.touch()
    site.stack.query("INSERT INTO departures (kind, user_id) VALUES ('erased', 1)")
    _make_due(site)
    yield
    site.backups.unlink()
    site.backups.mkdir()
    _make_due(site)


def _make_due(site: Site) -> None:
    site.stack.query(
        "UPDATE upkeep SET due_at = now(), send_after = now() WHERE name = 'backup.journal'"
    )


_BALANCE = "/auxilia/credits/balance"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

TROUBLES = {
    each.name: each
    for each in (
        Trouble("Postgres away", _of("postgres", Proxy.refuse), "PressroomDatabaseAway"),
        Trouble("Postgres hung", _of("postgres", Proxy.hang), "PressroomDatabaseAway"),
        Trouble(
            "Postgres slow",
            _of("postgres", lambda proxy: proxy.delay(0.2)),
            "PressroomStatementsSlow",
            calls=lambda _, client: _ignored(client.get(_BALANCE)),
        ),
        Trouble("Redis away", _of("redis", Proxy.refuse), "PressroomRedisAway"),
        Trouble("Redis hung", _of("redis", Proxy.hang), "PressroomRedisAway"),
        Trouble("broker away", _of("redis", Proxy.refuse), "PressroomBrokerAway"),
        Trouble("S3 away", _of("s3", Proxy.refuse), "PressroomStorageAway"),
        Trouble("S3 hung", _of("s3", Proxy.hang), "PressroomStorageAway"),
        Trouble(
            "S3 answering 503",
            _of("s3", lambda proxy: proxy.answer(UNAVAILABLE)),
            "PressroomStorageFails",
            calls=lambda _, client: _ignored(send(client, prefer="wait=1")),
        ),
        Trouble(
            "no worker in a lane", _lane_without_worker, "PressroomLaneBehind", {"lane": "media"}
        ),
        Trouble(
            "worker killed at work", _worker_killed_at_work, "PressroomLeasesLost", {"lane": "mail"}
        ),
        Trouble(
            "mail server refuses",
            _of("mail", Proxy.refuse),
            "PressroomMailDeferred",
            calls=Site.join,
        ),
        Trouble(
            "photo provider away",
            _of("photos", Proxy.refuse),
            "PressroomCircuitOpen",
            {"server": "photo provider"},
            calls=Site.search,
        ),
        Trouble("webhook receiver down", _receiver_down, "PressroomWebhookReceiverDown"),
        Trouble("backup fails", _backup_fails, "PressroomBackupOverdue"),
    )
}


def _ignored(_: httpx.Response) -> None:
    """What becomes of a call during a fault is the matrix' concern."""


@contextmanager
def called(site: Site, trouble: Trouble) -> Iterator[None]:
    """Somebody makes the trouble's calls, again and again, while the block lasts."""
    over = threading.Event()

    def call() -> None:
        assert trouble.calls is not None
        with site.client() as client:
            while not over.wait(_PAUSE_SECONDS):
                with suppress(httpx.HTTPError):
                    trouble.calls(site, client)

    threads = [threading.Thread(target=call, daemon=True) for _ in range(3)]
    for thread in threads if trouble.calls else ():
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads if trouble.calls else ():
            thread.join()
