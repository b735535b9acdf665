"""A small cluster: two hosts of the API behind HAProxy, two of workers, and the stores."""

import glob
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx2
from sqlalchemy import make_url

from devstack.harness.embedded_services import Services, await_ready, embedded_services
from devstack.harness.free_ports import free_port
from devstack.harness.opening import open_stack
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Stack, plain_client
from devstack.supervisor.programs import is_responding
from devstack.supervisor.supervision import Group
from tests.support.cluster.network import Host, Network, laid_network
from tests.support.cluster.stores import on_host, on_hosts
from tests.support.prerequisites import pass_over
from tests.support.probe.bench import PROBE_WORKER, Bench, make_bench
from tests.support.stack.haproxy import SERVERS, Front, in_front
from tests.support.stack.programs import TEST_PROGRAMS
from tests.support.stack.replica import RunningReplica, running_replica
from tests.support.stack.sentinels import SENTINELS, WatchedRedis, watched_redis
from tests.support.stack.sentinels import SERVERS as SERVERS_OF_REDIS

# Each host has its ports to itself.
API_PORT = 8000
PUBLIC_PORT = 443
HEALTHY_WITHIN = 60.0
# How far the clock of one host of the API is behind, and that of one host of workers is ahead.
WRONG_BY_SECONDS = 30
STORES = ("postgres", "replica", "s3")
REDIS_HOSTS = ("redis1", "redis2")
# The third Sentinel is on a host that has no Redis.
_PLACES = {
    **dict(zip(SERVERS_OF_REDIS, REDIS_HOSTS, strict=True)),
    **dict(zip(SENTINELS, (*REDIS_HOSTS, "proxy"), strict=True)),
}
APIS = ("api1", "api2")
WORKERS = ("worker1", "worker2")


def other_clock(seconds: int) -> dict[str, str]:
    """The environment of a process whose clock is wrong by so much."""
    found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")  # noqa: PTH207 - from the root
    if not found:
        pass_over("needs libfaketime (Debian: libfaketime)")
    return {
        "LD_PRELOAD": found[0],
        "FAKETIME": f"{seconds:+d}s",
        # What waits for some seconds waits for as long as elsewhere.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": str(Path(__file__).with_name("clock")),
    }


@dataclass
class Cluster:
    """Attributes:
    database: the address that leads to the Postgres which writes.
    """

    hosts: dict[str, Host]
    services: Services
    database: str
    replica: RunningReplica
    redis: WatchedRedis
    redis_group: Group
    bench: Bench
    running: dict[str, Running] = field(default_factory=dict)
    _front: Front | None = None

    @property
    def stack(self) -> Stack:
        return self.bench.stack

    @property
    def front(self) -> Front:
        assert self._front is not None
        return self._front

    @contextmanager
    def started(self) -> Iterator[None]:
        for name in (*APIS, *WORKERS):
            self.start(name)
        one, two = (f"{self.hosts[name].address}:{API_PORT}" for name in APIS)
        proxy = self.hosts["proxy"]
        public = f"{proxy.address}:{PUBLIC_PORT}"
        with in_front(self.stack, public, (one, two), proxy.prefix) as self._front:
            yield

    def start(self, name: str) -> None:
        host = self.hosts[name]
        start = partial(self.stack.start, name, prefix=host.prefix)
        if name in APIS:
            self.running[name] = start(
                *("serve", "--host", "0.0.0.0", "--port", str(API_PORT)),
                ready=lambda: host.inside(lambda: is_responding(API_PORT, "/healthz")),
                environment=host.environment,
            )
        else:
            queues = [word for queue in ("bulk", "media", "export") for word in ("--queue", queue)]
            self.running[name] = start(
                *("worker", *queues, "--concurrency", "1"),
                module=PROBE_WORKER,
                environment=host.environment,
            )

    def lose_power(self, *names: str) -> None:
        for name in names:
            self.hosts[name].unplug()
            self.hosts[name].kill()
            if running := self.running.pop(name, None):
                running.process.wait(10)
                self.stack.processes.remove(running)

    def get_power(self, *names: str) -> None:
        for name in names:
            self.hosts[name].plug()
            if name in REDIS_HOSTS:
                await_ready(self.redis_group)
            else:
                self.start(name)

    def promote_replica(self) -> None:
        """As a cluster manager does: the replica first, then the way to it."""
        self.replica.promote()
        self.hosts["replica"].take(self.database)
        self.stack.forget_connections()

    def host_of_broker(self, *, other_than: str | None = None) -> str:
        """The host of the Redis that is the master, once the Sentinels agree on one."""

        def found() -> str | None:
            place = _PLACES.get(self.redis.master() or "")
            return None if place == other_than else place

        return str(eventually(found, within=HEALTHY_WITHIN, what="a master"))

    def flush_broker(self) -> None:
        name = str(eventually(self.redis.master, what="a master"))
        self.redis.administrator(name).flushall()

    @contextmanager
    def unplugged(self, *names: str) -> Iterator[None]:
        for name in names:
            self.hosts[name].unplug()
        try:
            yield
        finally:
            for name in names:
                self.hosts[name].plug()

    @contextmanager
    def apart(self, *pairs: tuple[str, str]) -> Iterator[None]:
        """The two of each pair can't reach each other."""
        for one, other in pairs:
            self.hosts[one].cut_off(self.hosts[other])
        try:
            yield
        finally:
            for one, other in pairs:
                self.hosts[one].reach(self.hosts[other])

    def require_healthy(self) -> None:
        """Each host serves again, within a minute, and no process has ended by itself."""
        eventually(
            lambda: self._serves() and self._both_work(),
            within=HEALTHY_WITHIN,
            what="both hosts of the API, and jobs on both hosts of workers",
        )
        ended = [name for name, each in self.running.items() if each.process.poll() is not None]
        assert ended == []

    def clock_of(self, name: str) -> str:
        """The date in an answer of this host."""
        with plain_client() as client:
            return client.get(f"{self._url(name)}/healthz").headers["date"]

    def _serves(self) -> bool:
        if any(self.front.state(server) != "UP" for server in SERVERS):
            return False
        with plain_client(timeout=5.0) as client:
            try:
                told = [client.get(f"{self._url(name)}/readyz").json() for name in APIS]
            except httpx2.TransportError:
                return False
        return all(each["status"] == "ok" for each in told)

    def _both_work(self) -> bool:
        """Give both as much to do as one can't do alone."""
        jobs = [self.bench.enqueue(sleep=0.2) for _ in range(6)]
        for job in jobs:
            self.bench.finished(job, within=HEALTHY_WITHIN)
        rows = self.stack.query("SELECT pid FROM probe_starts WHERE job_id = ANY(%s)", jobs)
        pids = {int(str(pid)) for (pid,) in rows}
        return all(pids & self.hosts[name].pids() for name in WORKERS)

    def _url(self, name: str) -> str:
        return f"http://{self.hosts[name].address}:{API_PORT}"


def _laid_hosts(network: Network) -> dict[str, Host]:
    names = (*STORES, *REDIS_HOSTS, "proxy", *APIS, *WORKERS)
    hosts = {name: network.add(name, number) for number, name in enumerate(names, start=11)}
    for name, seconds in (("api2", -WRONG_BY_SECONDS), ("worker2", WRONG_BY_SECONDS)):
        hosts[name].environment |= other_clock(seconds)
    return hosts


@contextmanager
def running_cluster(home: Path) -> Iterator[Cluster]:
    """All of it. Nothing is left of it at the end, also after a failure."""
    with ExitStack() as opened:
        network = opened.enter_context(laid_network())
        hosts = _laid_hosts(network)
        database = network.address(10)
        hosts["postgres"].take(database)
        services = opened.enter_context(
            embedded_services(home, partial(on_hosts, hosts=hosts, database=database))
        )
        url = make_url(services.environment["PRESSROOM_DATABASE_URL"])
        replica = hosts["replica"]
        copy = opened.enter_context(
            # With the primary's port: it may take its place.
            running_replica(
                services, replica.address, partial(on_host, host=replica), port=url.port
            )
        )
        watched, group = opened.enter_context(_redis_on(hosts, home))
        stack = opened.enter_context(
            open_stack(
                services,
                home,
                "cluster",
                1,
                free_port(),
                redis_url=watched.url,
                programs=TEST_PROGRAMS,
            )
        )
        stack.environment |= {
            "PRESSROOM_PUBLIC_URL": f"https://{hosts['proxy'].address}",
            "PRESSROOM_TRUSTED_PROXIES": hosts["proxy"].address,
            "PRESSROOM_READ_DATABASE_URL": copy.reached_as(
                stack.environment["PRESSROOM_DATABASE_URL"]
            ),
        }
        cluster = Cluster(hosts, services, database, copy, watched, group, make_bench(stack))
        opened.enter_context(cluster.started())
        yield cluster


@contextmanager
def _redis_on(hosts: dict[str, Host], home: Path) -> Iterator[tuple[WatchedRedis, Group]]:
    addresses = {name: hosts[place].address for name, place in _PLACES.items()}
    folder = home / "redis"
    folder.mkdir()
    with watched_redis(
        folder,
        addresses=addresses,
        placed=lambda program: on_host(program, hosts[_PLACES[program.name]]),
    ) as watched:
        yield watched
