"""A small cluster of hosts, each with its own network namespace.

Two hosts behind HAProxy run the API, two hosts run workers, and the other hosts run Postgres, Redis
and the object storage.
"""

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
from tests.support.cluster.network import Host, Network, open_network
from tests.support.cluster.stores import on_host, on_hosts
from tests.support.prerequisites import skip_or_fail
from tests.support.probe.bench import PROBE_WORKER, Bench, make_bench
from tests.support.stack.haproxy import SERVERS, RunningHaproxy, running_haproxy
from tests.support.stack.programs import TEST_PROGRAMS
from tests.support.stack.replica import RunningReplica, running_replica
from tests.support.stack.sentinels import SENTINELS, WatchedRedis, watched_redis
from tests.support.stack.sentinels import SERVERS as SERVERS_OF_REDIS

# The ports are the same in each run, because each host has its own network namespace.
API_PORT = 8000
PUBLIC_PORT = 443
MAX_RECOVERY_SECONDS = 60.0
# The clock of one API host is slow by ``CLOCK_ERROR_SECONDS``, and the clock of one worker host is
# fast by ``CLOCK_ERROR_SECONDS``.
CLOCK_ERROR_SECONDS = 30
STORES = ("postgres", "replica", "s3")
REDIS_HOSTS = ("redis1", "redis2")
# Maps each Redis and each Sentinel to its host. The third Sentinel runs on a host without Redis.
_HOST_NAMES = {
    **dict(zip(SERVERS_OF_REDIS, REDIS_HOSTS, strict=True)),
    **dict(zip(SENTINELS, (*REDIS_HOSTS, "proxy"), strict=True)),
}
APIS = ("api1", "api2")
WORKERS = ("worker1", "worker2")


def clock_environment(seconds: int) -> dict[str, str]:
    """Return environment variables that make the clock of a process wrong by ``seconds``."""
    libraries = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")  # noqa: PTH207 - from the root
    if not libraries:
        skip_or_fail("needs libfaketime (Debian: libfaketime)")
    return {
        "LD_PRELOAD": libraries[0],
        "FAKETIME": f"{seconds:+d}s",
        # Keep the monotonic clock correct, so that waits take their usual time.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": str(Path(__file__).with_name("clock")),
    }


@dataclass
class Cluster:
    """A running cluster.

    Attributes:
        database: the IP address of the primary Postgres. When a test promotes the replica, the
            replica's host takes over the database's IP address.
    """

    hosts: dict[str, Host]
    services: Services
    database: str
    replica: RunningReplica
    redis: WatchedRedis
    redis_group: Group
    bench: Bench
    running: dict[str, Running] = field(default_factory=dict)
    _front: RunningHaproxy | None = None

    @property
    def stack(self) -> Stack:
        return self.bench.stack

    @property
    def front(self) -> RunningHaproxy:
        assert self._front is not None
        return self._front

    @contextmanager
    def started(self) -> Iterator[None]:
        for name in (*APIS, *WORKERS):
            self.start(name)
        one, two = (f"{self.hosts[name].address}:{API_PORT}" for name in APIS)
        proxy = self.hosts["proxy"]
        public = f"{proxy.address}:{PUBLIC_PORT}"
        with running_haproxy(self.stack, public, (one, two), proxy.prefix) as self._front:
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
        """Promote the replica, and give the database's IP address to the replica's host."""
        self.replica.promote()
        self.hosts["replica"].take(self.database)
        self.stack.forget_connections()

    def host_of_broker(self, *, other_than: str | None = None) -> str:
        """Wait until the Sentinels agree on a master, and return its host."""

        def find_host() -> str | None:
            host = _HOST_NAMES.get(self.redis.master() or "")
            return None if host == other_than else host

        return str(eventually(find_host, within=MAX_RECOVERY_SECONDS, what="a master"))

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
    def partitioned(self, *pairs: tuple[str, str]) -> Iterator[None]:
        for first, second in pairs:
            self.hosts[first].block(self.hosts[second])
        try:
            yield
        finally:
            for first, second in pairs:
                self.hosts[first].unblock(self.hosts[second])

    def require_healthy(self) -> None:
        """Wait until all hosts work, for up to a minute. Check that no process has exited."""
        eventually(
            lambda: self._is_serving() and self._are_both_working(),
            within=MAX_RECOVERY_SECONDS,
            what="both hosts of the API, and jobs on both hosts of workers",
        )
        ended = [name for name, each in self.running.items() if each.process.poll() is not None]
        assert ended == []

    def clock_of(self, name: str) -> str:
        with plain_client() as client:
            return client.get(f"{self._url(name)}/healthz").headers["date"]

    def _is_serving(self) -> bool:
        if any(self.front.state(server) != "UP" for server in SERVERS):
            return False
        with plain_client(timeout=5.0) as client:
            try:
                reports = [client.get(f"{self._url(name)}/readyz").json() for name in APIS]
            except httpx2.TransportError:
                return False
        return all(report["status"] == "ok" for report in reports)

    def _are_both_working(self) -> bool:
        """Return whether both worker hosts run jobs, when there are too many jobs for one host."""
        jobs = [self.bench.enqueue(sleep=0.2) for _ in range(6)]
        for job in jobs:
            self.bench.finished(job, within=MAX_RECOVERY_SECONDS)
        rows = self.stack.query("SELECT pid FROM probe_starts WHERE job_id = ANY(%s)", jobs)
        pids = {int(str(pid)) for (pid,) in rows}
        return all(pids & self.hosts[name].pids() for name in WORKERS)

    def _url(self, name: str) -> str:
        return f"http://{self.hosts[name].address}:{API_PORT}"


def _add_hosts(network: Network) -> dict[str, Host]:
    names = (*STORES, *REDIS_HOSTS, "proxy", *APIS, *WORKERS)
    hosts = {name: network.add(name, number) for number, name in enumerate(names, start=11)}
    for name, seconds in (("api2", -CLOCK_ERROR_SECONDS), ("worker2", CLOCK_ERROR_SECONDS)):
        hosts[name].environment |= clock_environment(seconds)
    return hosts


@contextmanager
def running_cluster(home: Path) -> Iterator[Cluster]:
    """Run a cluster. When the block ends or fails, remove the cluster's processes and hosts."""
    with ExitStack() as opened:
        network = opened.enter_context(open_network())
        hosts = _add_hosts(network)
        database = network.address(10)
        hosts["postgres"].take(database)
        services = opened.enter_context(
            embedded_services(home, partial(on_hosts, hosts=hosts, database=database))
        )
        url = make_url(services.environment["PRESSROOM_DATABASE_URL"])
        replica = hosts["replica"]
        running = opened.enter_context(
            # The replica has the same port as the primary, because clients keep using this port
            # after the replica is promoted.
            running_replica(
                services, replica.address, partial(on_host, host=replica), port=url.port
            )
        )
        watched, group = opened.enter_context(_run_redis(hosts, home))
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
            "PRESSROOM_READ_DATABASE_URL": running.build_url(
                stack.environment["PRESSROOM_DATABASE_URL"]
            ),
        }
        cluster = Cluster(hosts, services, database, running, watched, group, make_bench(stack))
        opened.enter_context(cluster.started())
        yield cluster


@contextmanager
def _run_redis(hosts: dict[str, Host], home: Path) -> Iterator[tuple[WatchedRedis, Group]]:
    addresses = {name: hosts[host].address for name, host in _HOST_NAMES.items()}
    folder = home / "redis"
    folder.mkdir()
    with watched_redis(
        folder,
        addresses=addresses,
        placed=lambda program: on_host(program, hosts[_HOST_NAMES[program.name]]),
    ) as watched:
        yield watched
