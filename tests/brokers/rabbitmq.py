"""A RabbitMQ of the tests' own, where Debian's `rabbitmq-server` is installed."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


@contextmanager
def running_rabbitmq(home: Path) -> Iterator[str]:
    """Yields its URL. Call it from the main thread, as for the services."""
    if not _SERVER.exists():
        pass_over("tests with RabbitMQ need Debian's package rabbitmq-server")
    port, names = free_port(), free_port()
    url = f"amqp://pressroom:word@{LOOPBACK}:{port}//"
    (home / "rabbitmq.conf").write_text(_CONFIGURATION)
    (home / "plugins").write_text("[].")
    environment = {
        **cleaned(),
        "HOME": str(home),
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": LOOPBACK,
        "RABBITMQ_NODENAME": f"tests-{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(home / "data"),
        "RABBITMQ_LOG_BASE": str(home),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_PID_FILE": str(home / "rabbitmq.pid"),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
    }
    programs = [
        Program("names", ("epmd", "-port", str(names)), home / "names.log", environment),
        Program(
            "rabbitmq",
            (str(_SERVER),),
            home / "rabbitmq.log",
            environment,
            ready=lambda: _answers(url),
            needs=frozenset({"names"}),
        ),
    ]
    watcher = Watcher()
    group = Group(programs, watcher, say=lambda _: None)
    try:
        await_ready(group)
        yield url
    finally:
        group.stop([["rabbitmq"], ["names"]])
        watcher.close()


def _answers(url: str) -> bool:
    connection = Connection(url, connect_timeout=1)
    with suppress(*connection.connection_errors, *connection.channel_errors), connection:
        connection.connect()
        return True
    return False
