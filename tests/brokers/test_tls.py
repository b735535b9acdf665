import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import pytest
import redis
from kombu import pools
from pydantic import SecretStr

from core.queues import Queue
from core.settings import Settings
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from models import JobStatus
from storage.broker import Broker
from storage.redis.client import open_async_redis, open_redis
from tests.support.http.certificates import authority
from tests.support.http.tls_front import tls_front
from tests.support.prerequisites import pass_over
from tests.support.probe.bench import make_bench
from tests.support.stack.sentinels import watched_redis


@dataclass(frozen=True)
class Encrypted:
    """The stack's Redis behind TLS: by the name of its certificate, and the file to trust."""

    stack: Stack
    port: int
    ca_file: Path

    def url(self, host: str = "127.0.0.1", query: str = "") -> str:
        login, _, place = self.stack.environment["PRESSROOM_REDIS_URL"].rpartition("@")
        number = place.rpartition("/")[2]
        return f"{login.replace('redis://', 'rediss://')}@{host}:{self.port}/{number}{query}"

    @property
    def trusted(self) -> str:
        return self.url(query=f"?ssl_ca_certs={self.ca_file}")

    def settings(self, url: str) -> Settings:
        return self.stack.settings().model_copy(update={"redis_url": SecretStr(url)})


@pytest.fixture(scope="module")
def tls_redis(
    make_stack: Callable[[str], Stack], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Encrypted]:
    home, stack = tmp_path_factory.mktemp("tls"), make_stack("tls")
    ours = authority(home / "ca.pem")
    port = redis.Redis.from_url(stack.environment["PRESSROOM_REDIS_URL"]).connection_pool
    plain = int(port.connection_kwargs["port"])
    with tls_front(ours.issue(home / "server.pem"), plain) as front:
        yield Encrypted(stack, front, ours.file)
        stack.stop()


def _reached(settings: Settings) -> dict[str, bool]:
    """Which of our clients reach the server."""

    def answers(ask: Callable[[], object]) -> bool:
        try:
            return bool(ask())
        except redis.RedisError:
            return False

    async def ask_async() -> bool:
        client = open_async_redis(settings)
        try:
            return bool(await client.set("probe", 1))
        finally:
            await client.aclose()

    # kombu keeps a process's connections by URL, whatever certificates they trust. Clearing its
    # registry closes no pool that another stack still uses.
    pools.connections.clear()
    pools.producers.clear()
    broker = Broker(settings)
    with open_redis(settings) as client:
        found = {
            "cache": answers(lambda: client.set("probe", 1)),
            "asynchronous": answers(lambda: asyncio.run(ask_async())),
            "sender": broker.send("probe.none", Queue.MEDIA, {}),
            "count": broker.count_waiting(Queue.MEDIA) is not None,
        }
    broker.close()
    return found


CLIENTS = ("cache", "asynchronous", "sender", "count")


@pytest.mark.tier("fast")
def test_redis_with_trusted_certificate_is_used(tls_redis: Encrypted) -> None:
    assert _reached(tls_redis.settings(tls_redis.trusted)) == dict.fromkeys(CLIENTS, True)


@pytest.mark.tier("fast")
def test_redis_with_untrusted_certificate_is_rejected(tls_redis: Encrypted) -> None:
    assert _reached(tls_redis.settings(tls_redis.url())) == dict.fromkeys(CLIENTS, False)


@pytest.mark.tier("fast")
def test_redis_certificate_for_another_host_is_rejected(tls_redis: Encrypted) -> None:
    url = tls_redis.url("localhost", f"?ssl_ca_certs={tls_redis.ca_file}")
    assert _reached(tls_redis.settings(url)) == dict.fromkeys(CLIENTS, False)


@pytest.mark.tier("fast")
def test_worker_processes_jobs_and_stays_alive_over_redis_tls(
    tls_redis: Encrypted, tmp_path: Path
) -> None:
    bench = make_bench(tls_redis.stack)
    alive = tmp_path / "alive"
    environment = {"PRESSROOM_REDIS_URL": tls_redis.trusted, "PRESSROOM_ALIVE_FILE": str(alive)}
    bench.start_worker(concurrency=1, **environment)
    assert bench.finished(bench.enqueue()).status == JobStatus.SUCCEEDED
    eventually(alive.exists, what="its sign of life")


def test_sentinels_and_their_redis_are_used_over_tls_only_if_trusted(
    tls_redis: Encrypted, tmp_path: Path
) -> None:
    server = which("redis-server")
    if server is None:
        pass_over("a Redis with TLS of its own needs Debian's package redis-server")
    ours = authority(tmp_path / "ca.pem")
    with watched_redis(tmp_path, server=Path(server), authority=ours) as (watched, _):
        settings = tls_redis.settings(watched.url)
        assert _reached(settings) == dict.fromkeys(CLIENTS, True)
        untrusted, _, _ = watched.url.partition("&ssl_ca_certs")
        assert _reached(tls_redis.settings(untrusted)) == dict.fromkeys(CLIENTS, False)
