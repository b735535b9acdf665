"""Tests Redis connections over TLS."""

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
from tests.support.prerequisites import skip_or_fail
from tests.support.probe.bench import make_bench
from tests.support.stack.sentinels import watched_redis


@dataclass(frozen=True)
class TlsRedis:
    """The test stack's Redis behind TLS, and the file of the certificate authority."""

    stack: Stack
    port: int
    ca_file: Path

    def url(self, host: str = "127.0.0.1", query: str = "") -> str:
        login, _, address = self.stack.environment["PRESSROOM_REDIS_URL"].rpartition("@")
        database = address.rpartition("/")[2]
        return f"{login.replace('redis://', 'rediss://')}@{host}:{self.port}/{database}{query}"

    @property
    def trusted_url(self) -> str:
        return self.url(query=f"?ssl_ca_certs={self.ca_file}")

    def settings(self, url: str) -> Settings:
        return self.stack.settings().model_copy(update={"redis_url": SecretStr(url)})


@pytest.fixture(scope="module")
def tls_redis(
    make_stack: Callable[[str], Stack], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsRedis]:
    home = tmp_path_factory.mktemp("tls")
    stack = make_stack("tls")
    certificate_authority = authority(home / "ca.pem")
    pool = redis.Redis.from_url(stack.environment["PRESSROOM_REDIS_URL"]).connection_pool
    plain_port = int(pool.connection_kwargs["port"])
    with tls_front(certificate_authority.issue(home / "server.pem"), plain_port) as tls_port:
        yield TlsRedis(stack, tls_port, certificate_authority.file)
        stack.stop()


def _can_connect(settings: Settings) -> dict[str, bool]:
    """Return for each of Pressroom's Redis clients whether the client can use the server."""

    def succeeds(call: Callable[[], object]) -> bool:
        try:
            return bool(call())
        except redis.RedisError:
            return False

    async def set_async() -> bool:
        client = open_async_redis(settings)
        try:
            return bool(await client.set("probe", 1))
        finally:
            await client.aclose()

    # kombu reuses a connection for the same URL, even if the trusted certificates differ. Clear
    # kombu's registries of connection pools, so that kombu opens new connections. Connection pools
    # that another stack still uses stay open.
    pools.connections.clear()
    pools.producers.clear()
    broker = Broker(settings)
    with open_redis(settings) as client:
        results = {
            "cache": succeeds(lambda: client.set("probe", 1)),
            "asynchronous": succeeds(lambda: asyncio.run(set_async())),
            "sender": broker.send("probe.none", Queue.MEDIA, {}),
            "count": broker.count_waiting(Queue.MEDIA) is not None,
        }
    broker.close()
    return results


CLIENTS = ("cache", "asynchronous", "sender", "count")


@pytest.mark.tier("fast")
def test_redis_with_trusted_certificate_is_used(tls_redis: TlsRedis) -> None:
    assert _can_connect(tls_redis.settings(tls_redis.trusted_url)) == dict.fromkeys(CLIENTS, True)


@pytest.mark.tier("fast")
def test_redis_with_untrusted_certificate_is_rejected(tls_redis: TlsRedis) -> None:
    assert _can_connect(tls_redis.settings(tls_redis.url())) == dict.fromkeys(CLIENTS, False)


@pytest.mark.tier("fast")
def test_redis_certificate_for_another_host_is_rejected(tls_redis: TlsRedis) -> None:
    url = tls_redis.url("localhost", f"?ssl_ca_certs={tls_redis.ca_file}")
    assert _can_connect(tls_redis.settings(url)) == dict.fromkeys(CLIENTS, False)


@pytest.mark.tier("fast")
def test_worker_processes_jobs_and_stays_alive_over_redis_tls(
    tls_redis: TlsRedis, tmp_path: Path
) -> None:
    bench = make_bench(tls_redis.stack)
    alive_file = tmp_path / "alive"
    environment = {
        "PRESSROOM_REDIS_URL": tls_redis.trusted_url,
        "PRESSROOM_ALIVE_FILE": str(alive_file),
    }
    bench.start_worker(concurrency=1, **environment)
    assert bench.finished(bench.enqueue()).status == JobStatus.SUCCEEDED
    eventually(alive_file.exists, what="the worker's alive file")


def test_sentinels_and_their_redis_are_used_over_tls_only_if_trusted(
    tls_redis: TlsRedis, tmp_path: Path
) -> None:
    server = which("redis-server")
    if server is None:
        skip_or_fail("a Redis with TLS needs Debian's package redis-server")
    certificate_authority = authority(tmp_path / "ca.pem")
    with watched_redis(tmp_path, server=Path(server), authority=certificate_authority) as (
        watched,
        _,
    ):
        settings = tls_redis.settings(watched.url)
        assert _can_connect(settings) == dict.fromkeys(CLIENTS, True)
        untrusted_url, _, _ = watched.url.partition("&ssl_ca_certs")
        assert _can_connect(tls_redis.settings(untrusted_url)) == dict.fromkeys(CLIENTS, False)
