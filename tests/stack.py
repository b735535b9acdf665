"""The real stack for tests: embedded services started once, and our programs as processes."""

import base64
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import psycopg2
import psycopg2.extensions
from psycopg2 import sql

from core.keyring import Key
from core.scopes import Scope
from core.settings import MAY_BE_EMPTY, Settings
from devstack import LOOPBACK
from devstack.sandbox import sandbox_settings
from devstack.supervisor.child import Program, spawn
from devstack.supervisor.environment import cleaned
from devstack.supervisor.ports import listens
from devstack.supervisor.programs import answers
from models import Plan
from services import removals
from services.access import api_keys
from services.accounts import accounts
from storage.migrations.run import migrate
from storage.objects import ObjectStore
from storage.resources import Resources, open_resources
from tests.embedded import BUCKET_PREFIX, Services
from tests.ports import free_port
from tests.zygote import Zygote

Found = TypeVar("Found")

_READY_WITHIN_SECONDS = 90.0

# In the ring of every stack behind its own key, as after a rotation.
RETIRED = Key("retired", b"r" * 32)
# This domain is on the deny list of the operator.
DENIED_BY_OPERATOR = "denied-by-operator.example"
LIMITS = tuple(f"PRESSROOM_{name.upper()}" for name in MAY_BE_EMPTY if "_limit_" in name)
# Tests make owners on the paid plan, some of whom have more jobs at once than people do. The free
# plan is that of the product.
QUOTA_PAID = "members=10000000"


def eventually(
    condition: Callable[[], Found | None], *, within: float = 60.0, what: str = "the condition"
) -> Found:
    """Poll until the condition holds and return what it gave; fail after `within` seconds."""
    began = time.monotonic()
    while True:
        found = condition()
        if found:
            return found
        waited = time.monotonic() - began
        assert waited < within, f"{what} did not come true within {within:g} s"
        # A poll may be a call and a query: those of a long wait took half of the processor.
        time.sleep(min(max(0.02, waited / 10), 0.1))


def plain_client(**options: Any) -> httpx2.Client:
    """A client that speaks HTTP without TLS.

    It has no certificates to check with: to read them takes longer than most tests.
    """
    return httpx2.Client(**{"timeout": 60.0, "verify": False, **options})


def _beginning(pid: int) -> str:
    """When the process began, in ticks; "" where there is none.

    While a group has members, no new process gets the number of its leader.
    """
    try:
        # The second of 52 fields is a name, which may have blanks and brackets in it (proc(5)).
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


@dataclass
class Running:
    """One process of ours, leader of its own session and group."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    _asked: bool = False
    _began: str = field(init=False)

    def __post_init__(self) -> None:
        self._began = _beginning(self.pid)

    @property
    def pid(self) -> int:
        return self.process.pid

    def children(self) -> list[int]:
        listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in listed.split()]

    def kill(self) -> None:
        """kill -9 of the main process alone, as an out-of-memory killer would."""
        self.process.kill()
        self.process.wait()

    def ask_to_end(self) -> None:
        if not self._asked and self.process.poll() is None:
            self.process.terminate()
        self._asked = True

    def stop(self, within: float = 30.0) -> int:
        """Ask it to end and wait; the whole group is killed if it does not."""
        self.ask_to_end()
        try:
            return self.process.wait(within)
        finally:
            self.destroy()

    def destroy(self) -> None:
        """Kill the whole group at once."""
        # Another process may have got the number since.
        if _beginning(self.pid) in ("", self._began):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Owner:
    """A user with an unrestricted API key."""

    user_id: int
    email: str
    key: str


@dataclass
class Stack:
    """A database, a Redis database and a bucket of their own, and what runs on them."""

    name: str
    home: Path
    environment: dict[str, str]
    # Of the test itself, with an administrator's Redis: it looks behind our programs.
    resources: Resources
    # The database as the owner of its tables, who is an administrator here.
    owner_url: str
    zygote: Zygote | None = None
    processes: list[Running] = field(default_factory=list)
    api_port: int = 0
    sandbox_url: str = ""
    _unready: list[Callable[[], None]] = field(default_factory=list)
    _waits_at_the_end: bool = False
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
        """Run `python -m module words…` with this stack's settings and wait until it is ready.

        `port`: where it listens itself then, so that another stack's server that got the port
        first is not taken for it. `prefix` is a command that runs it elsewhere, such as in a
        namespace. `forks`: without a start of its own where the zygote can do without.
        """
        argv = (*prefix, sys.executable, "-m", module, *words)
        program = self._program(name, argv, environment)
        if forks and self.zygote is not None and self.zygote.can_fork(program):
            process: subprocess.Popen[bytes] = self.zygote.spawn(program, module, words)
        else:
            process = spawn(program)
        return self._running(program, process, ready, port)

    def run(
        self,
        name: str,
        argv: tuple[str, ...],
        *,
        ready: Callable[[], bool] | None = None,
        port: int | None = None,
        environment: dict[str, str] | None = None,
    ) -> Running:
        """Run any program, which ends with the stack."""
        program = self._program(name, argv, environment)
        return self._running(program, spawn(program), ready, port)

    def _program(
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

    def _running(
        self,
        program: Program,
        process: subprocess.Popen[bytes],
        ready: Callable[[], bool] | None,
        port: int | None,
    ) -> Running:
        running = Running(program.name, process, program.log)
        self.processes.append(running)
        if ready is not None:
            self._unready.append(lambda: self._await_ready(running, ready, port))
            if not self._waits_at_the_end:
                self._await_started()
        return running

    @contextlib.contextmanager
    def starting_together(self) -> Iterator[None]:
        """What the block starts is ready at its end: each start waits for no other."""
        self._waits_at_the_end = True
        try:
            yield
        finally:
            self._waits_at_the_end = False
        self._await_started()

    def start_api(
        self, port: int | None = None, /, *, module: str = "tests.probe.serve", **environment: str
    ) -> Running:
        """An API process; the first one becomes the stack's `api_url`.

        Its password hashes cost nothing, except with `cli.main` as its module.
        """
        chosen = port or self.api_port
        return self.start(
            "api",
            "serve",
            "--port",
            str(chosen),
            module=module,
            ready=lambda: answers(chosen, "/healthz"),
            port=chosen,
            environment=environment,
            forks=True,
        )

    @contextlib.contextmanager
    def second_api(
        self, port: int | None = None, /, *, module: str = "tests.probe.serve", **environment: str
    ) -> Iterator["Stack"]:
        """The stack as its callers reach it by one more API process, which ends with the block."""
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
        """A worker for these queues, that does `concurrency` jobs of each at a time."""
        name = f"worker-{'-'.join(queues)}"
        mark = self.home / f"{self.name}-{name}-{time.monotonic_ns()}.ready"
        return self.start(
            name,
            "worker",
            *(word for queue in queues for word in ("--queue", queue)),
            "--concurrency",
            str(concurrency),
            module=module,
            ready=mark.exists,
            environment={"PRESSROOM_READY_FILE": str(mark), **environment},
            forks=True,
        )

    def start_sandbox(self) -> Running:
        """Stand-ins for other people's services; what is started after it uses them."""
        port, smtp = free_port(), free_port()
        self.sandbox_url = f"http://{LOOPBACK}:{port}"
        self.environment |= sandbox_settings.challenge_settings(self.sandbox_url, {})
        self.environment |= sandbox_settings.payment_settings(self.sandbox_url, {})
        self.environment |= sandbox_settings.stock_photo_settings(self.sandbox_url, {})
        self.environment["PRESSROOM_MAIL_URL"] = f"smtp://{LOOPBACK}:{smtp}"
        return self.start(
            "sandbox",
            "--port",
            str(port),
            "--smtp-port",
            str(smtp),
            "--webhook-url",
            f"{self.api_url}{sandbox_settings.WEBHOOK_PATH}",
            "--metrics-url",
            f"{self.api_url}/metrics",
            module="tests.sandbox",
            ready=lambda: answers(port, "/healthz"),
            port=port,
            forks=True,
        )

    def stop(self) -> None:
        # Asked all at once, since each takes its time.
        for running in self.processes:
            running.ask_to_end()
        for running in reversed(self.processes):
            running.stop()
        self.processes.clear()

    def _await_started(self) -> None:
        while self._unready:
            self._unready.pop(0)()

    def _await_ready(self, running: Running, ready: Callable[[], bool], port: int | None) -> None:
        def is_ready() -> bool:
            code = running.process.poll()
            assert code is None, f"{running.name} ended with {code}:\n{running.log.read_text()}"
            return ready() and (port is None or listens(running.pid, port))

        eventually(is_ready, within=_READY_WITHIN_SECONDS, what=f"{running.name}'s readiness")

    def new_owner(self, *, plan: Plan = Plan.PAID) -> Owner:
        self._users += 1
        email = f"owner{self._users}.{time.time_ns()}@example.com"
        with self.resources.unit_of_work() as uow:
            user = accounts.create_user(uow, email=email, name=f"Owner {self._users}")
            user.plan = plan
            user_id = user.id
        return Owner(user_id, email, self.new_key(user_id))

    def new_key(self, user_id: int, *scopes: Scope) -> str:
        with self.resources.unit_of_work() as uow:
            return api_keys.create(uow, user_id=user_id, name="test", scopes=scopes or None)[1]

    def client(self, key: str | None = None) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return plain_client(base_url=self.api_url, headers=headers)

    def opens(self, credential: str) -> bool:
        """Whether the API knows whose this key or token is."""
        with self.client(credential) as client:
            return client.get("/users/me").status_code == 200

    def mails(self, to: str) -> list[dict[str, Any]]:
        """Return the mails to this address, newest first, as the sandbox's mailbox lists them.

        Each mail that any test reads must tell automatic responders to stay silent.
        """
        with plain_client() as client:
            reply = client.get(f"{self.sandbox_url}/mail/messages", params={"to": to})
        listed: list[dict[str, Any]] = reply.raise_for_status().json()
        for mail in listed:
            headers = dict(mail["headers"])
            assert headers.get("Auto-Submitted") == "auto-generated", headers
            assert headers.get("X-Auto-Response-Suppress") == "OOF, AutoReply", headers
        return listed

    def query(self, statement: str, *parameters: object) -> list[tuple[object, ...]]:
        """Rows of one SQL statement, which has been committed; as the owner of the tables."""
        connection = self._connected()
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(statement, parameters)
                rows = cursor.fetchall() if cursor.description else []
            # Some statements set something for themselves alone.
            connection.reset()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return rows

    def stored(self, prefix: str = "") -> list[str]:
        """The keys in the bucket, after what a worker does every few seconds with the forgotten."""
        removals.work_off(self.resources)
        return [each.key for each in self.resources.objects.stored(prefix)]

    def _connected(self) -> psycopg2.extensions.connection:
        # To log in costs both sides ten times a statement, and a test that waits asks often.
        while self._idle:
            connection = self._idle.pop()
            if not _was_closed(connection):
                return connection
            connection.close()
        return psycopg2.connect(self.owner_url)

    def forget_connections(self) -> None:
        """Those of the test itself to the database, such as after its host went silent."""
        self.resources.database.engine.dispose()
        while self._idle:
            self._idle.pop().close()

    def close(self) -> None:
        # Asked to end, each would take seconds. A test of how a program ends stops it itself.
        for running in self.processes:
            running.destroy()
        self.forget_connections()


# Those of this process, which a failing test may have used.
OPEN_STACKS: list[Stack] = []


def _was_closed(connection: psycopg2.extensions.connection) -> bool:
    """Whether there is something to read for an idle connection: its end, or a farewell."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


@contextlib.contextmanager
def open_stack(
    services: Services,
    home: Path,
    name: str,
    number: int,
    port: int,
    *,
    migrated: bool = True,
    like: str = "template1",
    redis_url: str | None = None,
    zygote: Zygote | None = None,
) -> Iterator[Stack]:
    """A stack in the running services: database and bucket `name`, Redis database `number`.

    Args:
        like: the database that a new one begins as a copy of.
        redis_url: of a Redis that is not among the services.
        zygote: what programs are forked from that need no start of their own.
    """
    environment = _own_namespace(services.environment, name, number, like)
    owner_url = environment.pop("PRESSROOM_MIGRATION_DATABASE_URL")
    environment["PRESSROOM_REDIRECT_ORIGINS"] = "loopback,https://shop.example"
    # Replies are compared with each other, and all callers and mailboxes have one network and one
    # domain; tests of limits set their own.
    environment |= dict.fromkeys(LIMITS, "")
    environment["PRESSROOM_QUOTA_PAID"] = QUOTA_PAID
    environment["PRESSROOM_DENY_LIST"] = DENIED_BY_OPERATOR
    environment["PRESSROOM_PUBLIC_URL"] = f"http://{LOOPBACK}:{port}"
    administrator = redis_url or _as_administrator(services, environment)
    environment["PRESSROOM_REDIS_URL"] = redis_url or environment["PRESSROOM_REDIS_URL"]
    settings = settings_of(environment, PRESSROOM_REDIS_URL=administrator)
    resources = open_resources(settings, concurrency=8, name="tests")
    try:
        if migrated:
            migrate(settings_of(environment, PRESSROOM_MIGRATION_DATABASE_URL=owner_url))
        administrators = {
            "PRESSROOM_S3_ACCESS_KEY": services.secrets.s3_admin_access_key,
            "PRESSROOM_S3_SECRET_KEY": services.secrets.s3_admin_secret_key,
        }
        ObjectStore(settings_of(environment, **administrators), connections=1).make_bucket()
        seen = {**cleaned(), **environment}
        stack = Stack(name, home, seen, resources, owner_url, zygote, api_port=port)
        OPEN_STACKS.append(stack)
        try:
            yield stack
        finally:
            OPEN_STACKS.remove(stack)
            stack.close()
    finally:
        resources.close()


def settings_of(environment: dict[str, str], **more: str) -> Settings:
    """The settings of a program with this environment."""
    return Settings.model_validate(
        {
            key.removeprefix("PRESSROOM_").lower(): value
            for key, value in {**environment, **more}.items()
            if key.startswith("PRESSROOM_")
        }
    )


def _as_administrator(services: Services, environment: dict[str, str]) -> str:
    """The URL of Redis with which a test may empty, fill and look into it."""
    server = environment["PRESSROOM_REDIS_URL"].rpartition("@")[2]
    return f"redis://:{services.secrets.valkey_admin_password}@{server}"


def _own_namespace(
    environment: dict[str, str], name: str, number: int, like: str
) -> dict[str, str]:
    owner = environment["PRESSROOM_MIGRATION_DATABASE_URL"]
    connected = psycopg2.connect(owner)
    connected.autocommit = True
    with connected.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
        # A benchmark goes on with the database that its last run filled.
        if cursor.fetchone() is None:
            names = sql.Identifier(name), sql.Identifier(like)
            cursor.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
    connected.close()
    retired = base64.urlsafe_b64encode(RETIRED.secret).decode()
    return {
        **environment,
        "PRESSROOM_SECRET_KEYS": f"{environment['PRESSROOM_SECRET_KEYS']},{RETIRED.id}:{retired}",
        "PRESSROOM_DATABASE_URL": _to(environment["PRESSROOM_DATABASE_URL"], name),
        "PRESSROOM_MIGRATION_DATABASE_URL": _to(owner, name),
        "PRESSROOM_REDIS_URL": _to(environment["PRESSROOM_REDIS_URL"], str(number)),
        "PRESSROOM_S3_BUCKET": f"{BUCKET_PREFIX}{name}",
    }


def _to(url: str, database: str) -> str:
    return f"{url.rpartition('/')[0]}/{database}"
