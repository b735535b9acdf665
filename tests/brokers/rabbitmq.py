"""RabbitMQ of the tests' own, one server or a cluster, where Debian's package is installed."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kombu.connection import Connection

from devstack import LOOPBACK
from devstack.supervisor.home.environment import cleaned
from devstack.supervisor.processes.group import Group
from devstack.supervisor.processes.program import Program
from devstack.supervisor.processes.watcher_client import Watcher
from tests.embedded import await_ready
from tests.ports import free_port
from tests.prerequisites import pass_over

# The script of the same name in /usr/sbin changes the user, which tests can't.
_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_CONFIGURATION = """
disk_free_limit.absolute = 50MB
default_user = pressroom
default_pass = word
"""
_MAX_START_SECONDS = 90.0


@dataclass(frozen=True)
class Node:
    number: int
    port: int

    @property
    def name(self) -> str:
        return f"rabbitmq-{self.number}"

    @property
    def node_name(self) -> str:
        return f"tests-{self.port}@localhost"

    @property
    def url(self) -> str:
        return f"amqp://pressroom:word@{LOOPBACK}:{self.port}//"

    def answers(self) -> bool:
        connection = Connection(self.url, connect_timeout=1)
        with suppress(*connection.connection_errors, *connection.channel_errors), connection:
            connection.connect()
            return True
        return False


@dataclass(frozen=True)
class RabbitMQ:
    nodes: list[Node]
    group: Group

    @property
    def url(self) -> str:
        return ";".join(node.url for node in self.nodes)

    def kill(self, node: Node) -> None:
        """End a server as a lost machine does; it is not started again."""
        os.killpg(self.group.pids[node.name], signal.SIGKILL)


@contextmanager
def running_rabbitmq(home: Path, *, servers: int = 1) -> Iterator[RabbitMQ]:
    """Call it from the main thread, as for the services."""
    if not _SERVER.exists():
        pass_over("tests with RabbitMQ need Debian's package rabbitmq-server")
    nodes = [Node(number, free_port()) for number in range(1, servers + 1)]
    lines = [_CONFIGURATION, "cluster_formation.peer_discovery_backend = classic_config"]
    lines += [
        f"cluster_formation.classic_config.nodes.{node.number} = {node.node_name}" for node in nodes
    ]
    (home / "rabbitmq.conf").write_text("\n".join([*lines, ""]))
    (home / "plugins").write_text("[].")
    cookie = home / ".erlang.cookie"
    cookie.write_text("COOKIEOFTHETESTS")
    cookie.chmod(0o400)
    names = free_port()
    found_at = {**cleaned(), "ERL_EPMD_PORT": str(names), "ERL_EPMD_ADDRESS": LOOPBACK}
    programs = [Program("names", ("epmd", "-port", str(names)), home / "names.log", found_at)]
    programs += [_program(node, home, found_at) for node in nodes]
    watcher = Watcher()
    group = Group(programs, watcher, say=lambda _: None)
    try:
        await_ready(group, _MAX_START_SECONDS)
        yield RabbitMQ(nodes, group)
    finally:
        group.stop([[node.name for node in nodes], ["names"]])
        watcher.close()


def _program(node: Node, home: Path, found_at: dict[str, str]) -> Program:
    return Program(
        node.name,
        (str(_SERVER),),
        home / f"{node.name}.log",
        {
            **found_at,
            "HOME": str(home),
            "RABBITMQ_NODENAME": node.node_name,
            "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
            "RABBITMQ_NODE_PORT": str(node.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_LOG_BASE": str(home),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(home / f"{node.name}.pid"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
        },
        ready=node.answers,
        needs=frozenset({"names"}),
    )
