"""Runs an isolated stack with its own database, Redis database, bucket and programs."""

import contextlib
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import psycopg2
import psycopg2.extensions

from core.ids import AccountId, PersonId
from core.scopes import Scope
from core.settings import Settings
from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.sandbox import sandbox_settings
from devstack.supervisor.child import Program, spawn_program
from devstack.supervisor.ports import is_listening
from devstack.supervisor.programs import is_responding
from models import Plan
from services import removals
from services.access import api_keys
from services.accounts import accounts
from storage.resources import Resources

_MAX_START_SECONDS = 90.0

# Runs a Python module with arguments in a forked process. Returns ``None`` if the program can't be
# forked.
Fork = Callable[[Program, str, tuple[str, ...]], subprocess.Popen[bytes] | None]


def plain_client(**options: Any) -> httpx2.Client:
    """Load no certificates, because loading them takes longer than most tests."""
    return httpx2.Client(**{"timeout": 60.0, "verify": False, **options})


@dataclass
class Owner:
    user_id: int
    email: str
    key: str

    @property
    def account_id(self) -> AccountId:
        return AccountId(self.user_id)

    @property
    def person_id(self) -> PersonId:
        return PersonId(self.user_id)


@dataclass(frozen=True)
class StackPrograms:
    """The Python modules of a stack's programs, and an optional function for forking a program."""

    api: str = "cli.main"
    sandbox: str = "devstack.sandbox"
    fork: Fork | None = None


@dataclass
class Stack:
    """An isolated stack for tests, and its running programs.

    Attributes:
        resources: the test process's connections to the services, with administrator rights in
            Redis.
        owner_url: the database URL of the superuser who owns the tables.
    """

    name: str
    home: Path
    environment: dict[str, str]
    resources: Resources
    owner_url: str
    programs: StackPrograms = field(default_factory=StackPrograms)
    processes: list[Running] = field(default_factory=list)
    api_port: int = 0
    sandbox_url: str = ""
    _unready_programs: list[Callable[[], None]] = field(default_factory=list)
    _delays_waiting: bool = False
    _users: int = 0
    _idle: list[psycopg2.extensions.connection] = field(default_factory=list)

    @property
    def api_url(self) -> str:
        return f"http://{LOOPBACK}:{self.api_port}"

    def settings(self) -> Settings:
        return self.resources.settings

    def start(
        self,
        name: str,
        *words: str,
        module: str = "cli.main",
        ready: Callable[[], bool] | None = None,
        port: int | None = None,
        environment: dict[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        forks: bool = False,
    ) -> Running:
        """Run ``python -m module words…`` in the stack, and wait until the program is ready.

        Args:
            prefix: a command to run before the program, for example to enter a network namespace.
            forks: whether the program may be forked from a process that has already imported its
                module.
        """
        argv = (*prefix, sys.executable, "-m", module, *words)
        program = self._build_program(name, argv, environment)
        process: subprocess.Popen[bytes] | None = None
        if forks and self.programs.fork is not None:
            process = self.programs.fork(program, module, words)
        return self._add_process(program, process or spawn_program(program), ready, port)

    def run(
        self,
        name: str,
        argv: tuple[str, ...],
        *,
        ready: Callable[[], bool] | None = None,
        port: int | None = None,
        environment: dict[str, str] | None = None,
    ) -> Running:
        program = self._build_program(name, argv, environment)
        return self._add_process(program, spawn_program(program), ready, port)

    def _build_program(
        self,
        name: str,
        argv: tuple[str, ...],
        environment: dict[str, str] | None,
    ) -> Program:
        return Program(
            name=name,
            argv=argv,
            log=self.home / f"{self.name}-{name}.log",
            environment={**self.environment, **(environment or {})},
        )

    def _add_process(
        self,
        program: Program,
        process: subprocess.Popen[bytes],
        ready: Callable[[], bool] | None,
        port: int | None,
    ) -> Running:
        running = Running(program.name, process, program.log)
        self.processes.append(running)
        if ready is not None:
            self._unready_programs.append(lambda: self._await_ready(running, ready, port))
            if not self._delays_waiting:
                self._await_started()
        return running

    @contextlib.contextmanager
    def starting_together(self) -> Iterator[None]:
        """Wait at the end of the block until all programs started in the block are ready."""
        self._delays_waiting = True
        try:
            yield
        finally:
            self._delays_waiting = False
        self._await_started()

    def start_api(
        self, port: int | None = None, /, *, module: str | None = None, **environment: str
    ) -> Running:
        """Start an API process that listens on ``port``, by default the port of ``api_url``."""
        api_port = port or self.api_port
        return self.start(
            "api",
            "serve",
            "--port",
            str(api_port),
            module=module or self.programs.api,
            ready=lambda: is_responding(api_port, "/healthz"),
            port=api_port,
            environment=environment,
            forks=True,
        )

    @contextlib.contextmanager
    def run_second_api(
        self, port: int | None = None, /, *, module: str | None = None, **environment: str
    ) -> Iterator["Stack"]:
        """Run an additional API process during the block, and yield a stack that uses it."""
        second = replace(self, api_port=port or free_port())
        running = second.start_api(second.api_port, module=module, **environment)
        try:
            yield second
        finally:
            running.stop()
            self.processes.remove(running)

    def start_worker(
        self, *queues: str, concurrency: int = 2, module: str = "cli.main", **environment: str
    ) -> Running:
        name = f"worker-{'-'.join(queues)}"
        ready_file = self.home / f"{self.name}-{name}-{time.monotonic_ns()}.ready"
        return self.start(
            name,
            "worker",
            *(word for queue in queues for word in ("--queue", queue)),
            "--concurrency",
            str(concurrency),
            module=module,
            ready=ready_file.exists,
            environment={"PRESSROOM_READY_FILE": str(ready_file), **environment},
            forks=True,
        )

    def start_sandbox(self) -> Running:
        """Start the sandbox before the programs that use it."""
        port = free_port()
        smtp_port = free_port()
        self.sandbox_url = f"http://{LOOPBACK}:{port}"
        self.environment |= sandbox_settings.build_challenge_settings(self.sandbox_url, {})
        self.environment |= sandbox_settings.build_payment_settings(self.sandbox_url, {})
        self.environment |= sandbox_settings.build_stock_photo_settings(self.sandbox_url, {})
        self.environment |= sandbox_settings.build_sns_settings(self.sandbox_url, {})
        self.environment["PRESSROOM_MAIL_URL"] = f"smtp://{LOOPBACK}:{smtp_port}"
        return self.start(
            "sandbox",
            "--port",
            str(port),
            "--smtp-port",
            str(smtp_port),
            "--webhook-url",
            f"{self.api_url}{sandbox_settings.WEBHOOK_PATH}",
            "--metrics-url",
            f"{self.api_url}/metrics",
            module=self.programs.sandbox,
            ready=lambda: is_responding(port, "/healthz"),
            port=port,
            forks=True,
        )

    def stop(self) -> None:
        # Signal all programs before waiting, so that they stop at the same time.
        for running in self.processes:
            running.terminate()
        for running in reversed(self.processes):
            running.stop()
        self.processes.clear()

    def _await_started(self) -> None:
        while self._unready_programs:
            self._unready_programs.pop(0)()

    def _await_ready(self, running: Running, ready: Callable[[], bool], port: int | None) -> None:
        def is_ready() -> bool:
            code = running.process.poll()
            assert code is None, f"{running.name} ended with {code}:\n{running.log.read_text()}"
            return ready() and (port is None or is_listening(running.pid, port))

        eventually(is_ready, within=_MAX_START_SECONDS, what=f"{running.name}'s readiness")

    def create_owner(self, *, plan: Plan = Plan.PAID) -> Owner:
        self._users += 1
        email = f"owner{self._users}.{time.time_ns()}@example.com"
        with self.resources.unit_of_work() as uow:
            user = accounts.create_user(uow, email=email, name=f"Owner {self._users}")
            user.plan = plan
            # Create the user and the key in one transaction, to save time in each test.
            key = api_keys.create_key(uow, account_id=user.account_id, name="test")[1]
            return Owner(user.id, email, key)

    def create_key(self, user_id: int, *scopes: Scope) -> str:
        with self.resources.unit_of_work() as uow:
            return api_keys.create_key(
                uow, account_id=AccountId(user_id), name="test", scopes=scopes or None
            )[1]

    def client(self, key: str | None = None) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return plain_client(base_url=self.api_url, headers=headers)

    def is_accepted(self, credential: str) -> bool:
        with self.client(credential) as client:
            return client.get("/users/me").is_success

    def mails(self, to: str) -> list[dict[str, Any]]:
        """Return mails newest first, and assert that each has the headers that prevent automatic
        replies.
        """
        with plain_client() as client:
            reply = client.get(f"{self.sandbox_url}/mail/messages", params={"to": to})
        messages: list[dict[str, Any]] = reply.raise_for_status().json()
        for mail in messages:
            headers = dict(mail["headers"])
            assert headers.get("Auto-Submitted") == "auto-generated", headers
            assert headers.get("X-Auto-Response-Suppress") == "OOF, AutoReply", headers
        return messages

    def query(self, statement: str, *parameters: object) -> list[tuple[object, ...]]:
        """Run and commit one SQL statement as the owner of the tables, and return its rows."""
        connection = self._connect()
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(statement, parameters)
                rows = cursor.fetchall() if cursor.description else []
            # Reset the session, because the statement may have changed a session setting.
            connection.reset()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return rows

    def stored(self, prefix: str = "") -> list[str]:
        """Delete the bucket's objects that are due for deletion, and return the remaining keys."""
        removals.process_due_removals(self.resources)
        return [each.key for each in self.resources.objects.list_objects(prefix)]

    def _connect(self) -> psycopg2.extensions.connection:
        # Reuse database connections, because opening one takes ten times as long as a statement.
        while self._idle:
            connection = self._idle.pop()
            if not _is_closed(connection):
                return connection
            connection.close()
        return psycopg2.connect(self.owner_url)

    def forget_connections(self) -> None:
        """Close all database connections, for example after the database host failed."""
        self.resources.database.engine.dispose()
        while self._idle:
            self._idle.pop().close()

    def close(self) -> None:
        # Kill the programs, because a graceful shutdown takes several seconds.
        for running in self.processes:
            running.destroy()
        self.forget_connections()


def _is_closed(connection: psycopg2.extensions.connection) -> bool:
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
