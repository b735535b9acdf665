"""Tests the start and the exit of each kind of process."""

import signal
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import make_url

from devstack.harness.embedded_services import Services
from devstack.harness.free_ports import free_port
from devstack.harness.opening import open_stack
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack, plain_client
from devstack.supervisor.embedded.valkey import DATABASES
from devstack.supervisor.programs import is_responding
from tests.support.http.replies import data
from tests.support.images.pictures import photo
from tests.support.probe.silent_names import SILENT
from tests.support.stack.programs import TEST_PROGRAMS


@pytest.fixture
def port() -> int:
    return free_port()


def test_api_exits_cleanly_on_sigterm(stack: Stack, port: int) -> None:
    api = _start(stack, "api", "serve", "--host", "0.0.0.0", "--port", str(port), path="/readyz")
    assert api.stop() == 0


@pytest.mark.tier("processes")
@pytest.mark.parametrize("processes", [1, 2])
def test_terminating_api_reports_not_ready_and_still_serves_calls(
    stack: Stack, owner: Owner, port: int, processes: int
) -> None:
    words = ("serve", "--port", str(port), "--processes", str(processes))
    api = _start(stack, "api-drain", *words, path="/readyz", PRESSROOM_API_DRAIN="5")
    headers = {"Authorization": f"Bearer {owner.key}"}
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers=headers) as client:
        assert "connection" not in client.get("/readyz").headers
        # Send the signal twice, because a process manager may signal both the process and its
        # parent, and the parent forwards the signal to the process.
        for _ in range(2):
            api.process.terminate()

        def get_unready_reply() -> httpx2.Response | None:
            reply = client.get("/readyz")
            return reply if reply.status_code == 503 else None

        reply = eventually(get_unready_reply, what="the status 503 of /readyz")
        assert isinstance(reply, httpx2.Response)
        assert reply.json()["status"] == "ending"
        assert reply.headers["connection"] == "close"
        assert client.get("/healthz").status_code == 200
        assert client.post("/lists", json={"title": "Late", "slug": f"late-{processes}"}).is_success
    assert api.process.wait(30) == 0


@pytest.mark.tier("processes")
def test_api_exits_cleanly_on_sigterm_while_name_server_hangs(stack: Stack, port: int) -> None:
    words = ("serve", "--port", str(port))
    environment = {"PRESSROOM_REDIS_URL": f"redis://{SILENT}:6379/0"}
    api = _start(
        stack,
        "names",
        *words,
        path="/healthz",
        module="tests.support.probe.silent_names",
        **environment,
    )
    assert api.stop() == 0


def test_flower_requires_its_password_and_rejects_changes(stack: Stack, port: int) -> None:
    words = ("flower", "--host", "0.0.0.0", "--port", str(port))
    flower = _start(stack, "flower", *words, path="/healthcheck")
    settings = stack.settings()
    assert settings.flower_password
    with plain_client(base_url=f"http://127.0.0.1:{port}") as http:
        assert http.get("/").status_code == 401
        login = (settings.flower_user, settings.flower_password.get_secret_value())
        assert http.get("/", auth=login).status_code == 200
        # Flower shows the workers, but doesn't change them.
        headers = {"X-Requested-With": "XMLHttpRequest", "Sec-Fetch-Site": "same-origin"}
        reply = http.post("/api/worker/shutdown/any", auth=login, headers=headers)
        assert reply.status_code == 403
    assert flower.stop() == 0


@pytest.mark.tier("processes")
def test_flower_answers_only_to_its_configured_host_names(stack: Stack, port: int) -> None:
    words = ("flower", "--host-name", "127.0.0.1", "--port", str(port))
    _start(stack, "flower-named", *words, path="/healthcheck")
    with plain_client(base_url=f"http://127.0.0.1:{port}") as http:
        for path, name in (("/metrics", "rebind.evil.example"), ("/healthcheck", "localhost")):
            assert http.get(path, headers={"Host": f"{name}:{port}"}).status_code == 404


def test_flower_does_not_start_without_password(stack: Stack, port: int) -> None:
    flower = stack.start(
        "flower-open", "flower", "--port", str(port), environment={"PRESSROOM_FLOWER_PASSWORD": ""}
    )
    assert flower.process.wait(30) == 2
    assert "PRESSROOM_FLOWER_PASSWORD" in flower.log.read_text()


@pytest.mark.tier("processes")
def test_media_worker_converts_uploads_without_a_signing_key(
    make_stack: Callable[[str], Stack],
) -> None:
    stack = make_stack("unsigned")
    with stack.starting_together():
        stack.start_api()
        stack.start_worker("media", PRESSROOM_SECRET_KEYS="")
    waits = {"Prefer": "wait=30"}
    with stack.client(stack.create_owner().key) as client:
        for encrypted in ("false", "true"):
            file = {"file": ("p.jpg", photo(64, 48))}
            query = {"encrypted": encrypted}
            reply = client.post("/attachments", params=query, files=file, headers=waits)
            assert data(reply)["mime_type"] == "image/webp"
    words = ("worker", "--queue", "media", "--queue", "bulk")
    worker = stack.start("signing", *words, environment={"PRESSROOM_SECRET_KEYS": ""})
    assert worker.process.wait(60) == 2
    assert "PRESSROOM_SECRET_KEYS" in worker.log.read_text()


def test_worker_exits_cleanly_on_sigterm(stack: Stack) -> None:
    assert stack.start_worker("bulk", concurrency=1).stop() == 0


@pytest.mark.tier("processes")
def test_migrate_wait_blocks_until_another_process_has_migrated(
    services: Services, home: Path, port: int
) -> None:
    with open_stack(
        services, home, "waits", DATABASES - 1, port, migrated=False, programs=TEST_PROGRAMS
    ) as empty:
        waiting = empty.start("waits", "migrate", "--wait")
        event = "migrate.waits_for_the_database"
        eventually(lambda: event in waiting.log.read_text(), what="the event in the log")
        assert waiting.process.poll() is None
        owner = {"PRESSROOM_MIGRATION_DATABASE_URL": empty.owner_url}
        assert empty.start("migrates", "migrate", environment=owner).process.wait(60) == 0
        assert waiting.process.wait(30) == 0
        assert empty.start("waits-again", "migrate", "--wait").process.wait(30) == 0


def test_migrate_wait_exits_on_sigterm_while_database_is_unreachable(
    stack: Stack, port: int
) -> None:
    url = f"postgresql://pressroom:secret@127.0.0.1:{port}/pressroom"
    environment = {"PRESSROOM_DATABASE_URL": url}
    waiting = stack.start("waits-away", "migrate", "--wait", environment=environment)
    error = "Connection refused"
    eventually(lambda: error in waiting.log.read_text(), what="the error in the log")
    assert "secret" not in waiting.log.read_text()
    # The exit code isn't 0, because the database is not migrated.
    assert waiting.stop() == 128 + signal.SIGTERM


@pytest.mark.tier("processes")
@pytest.mark.parametrize(
    "words",
    [
        ("serve",),
        ("worker", "--queue", "bulk"),
        pytest.param(("users", "list"), marks=pytest.mark.tier("fast")),
    ],
)
def test_process_rejects_database_role_without_timeouts_and_names_the_remedy(
    stack_without_timeouts: Stack, port: int, words: tuple[str, ...]
) -> None:
    """A restore into a new database restores the tables, but not the database role's timeouts."""
    options = ("--port", str(port)) if words == ("serve",) else ()
    program = stack_without_timeouts.start(f"unlimited-{words[0]}", *words, *options)
    assert program.process.wait(60) == 1
    log = program.log.read_text()
    assert "statement_timeout, lock_timeout, idle_in_transaction_session_timeout, timezone" in log
    assert "run `pressroom migrate`" in log


@pytest.fixture(scope="module")
def stack_without_timeouts(make_stack: Callable[[str], Stack]) -> Stack:
    stack = make_stack("unlimited")
    role = make_url(stack.environment["PRESSROOM_DATABASE_URL"]).username
    stack.query(f"ALTER ROLE {role} IN DATABASE unlimited RESET ALL")
    # Simulate a Postgres server whose default time zone isn't UTC.
    stack.query("ALTER DATABASE unlimited SET timezone = 'Europe/Berlin'")
    return stack


@pytest.mark.tier("processes")
@pytest.mark.parametrize(
    ("command", "setting", "server"),
    [
        ("migrate", "PRESSROOM_MIGRATION_DATABASE_URL", "postgresql://owner:secret@{}/pressroom"),
        pytest.param(
            "bucket", "PRESSROOM_S3_ENDPOINT", "http://{}", marks=pytest.mark.tier("fast")
        ),
    ],
)
def test_one_off_commands_exit_on_sigterm_while_their_server_hangs(
    stack: Stack, command: str, setting: str, server: str
) -> None:
    """The first process of a container ignores signals for which it has no handler."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        url = server.format(f"127.0.0.1:{silent.getsockname()[1]}")
        running = stack.start(f"silent-{command}", command, environment={setting: url})
        connection, _ = silent.accept()
        with connection:
            assert running.stop() == 128 + signal.SIGTERM


def _start(
    stack: Stack, name: str, *words: str, path: str, module: str = "cli.main", **environment: str
) -> Running:
    ready = partial(is_responding, int(words[words.index("--port") + 1]), path)
    return stack.start(
        f"deployed-{name}", *words, module=module, ready=ready, environment=environment
    )
