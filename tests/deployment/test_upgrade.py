"""From the oldest release to this one, under load: no call fails that its caller must notice."""

import contextlib
import csv
import io
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg2
import pytest

from services.money.credits import verify
from storage.migrations.run import head_revision
from tests.deployment.release_before import OLDEST, ROOT, ReleaseBefore, unpack
from tests.embedded import embedded_services
from tests.faults.size import FULL, sized
from tests.ports import free_port
from tests.stack import Owner, Stack, eventually, open_stack

pytestmark = pytest.mark.timeout(7200 if FULL else 300)

log = logging.getLogger(__name__)

SUBSCRIPTIONS = sized(5_000, 20_000_000)
IMPORTED = sized(20_000, 1_000_000)
CALLERS = 2
# A client that its user waits for tries for no longer.
MENDED_WITHIN = 30.0
_PAUSE = 0.2


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReleaseBefore]:
    home: Path = tmp_path_factory.mktemp("upgrade")
    folder = home / "release-before"
    unpack(OLDEST, folder)
    port = free_port()
    with (
        embedded_services(home) as services,
        open_stack(services, home, "upgrade", 1, port, migrated=False) as stack,
    ):
        release = ReleaseBefore(stack, folder)
        release.command("migrate")
        yield release


@dataclass
class Client:
    """A caller who asks again, with the same Idempotency-Key, until they are answered."""

    key: str
    ports: list[int]
    again: list[str] = field(default_factory=list)

    def call(self, method: str, path: str, **more: object) -> httpx.Response:
        headers = {"X-API-Key": self.key, "Idempotency-Key": uuid4().hex}
        until = time.monotonic() + MENDED_WITHIN
        tries = 0
        while True:
            port = self.ports[tries % len(self.ports)]
            try:
                with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                    answer = client.request(method, path, headers=headers, **more)  # type: ignore[arg-type]
                if answer.is_success:
                    return answer
                found = f"{answer.status_code} {answer.text}"
                is_for_good = answer.status_code not in (409, 429, 500, 502, 503, 504)
            except httpx.TransportError as error:
                found, is_for_good = type(error).__name__, False
            self.again.append(f"{method} {path}: {found}")
            assert not is_for_good, found
            assert time.monotonic() < until, self.again[-5:]
            tries += 1
            time.sleep(_PAUSE)


@dataclass
class Load:
    """Calls that go on until the load ends; each thread's fault is raised there."""

    ports: list[int]
    charged: int = 0
    again: list[str] = field(default_factory=list)
    longest: float = 0.0
    _faults: list[BaseException] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _count: threading.Lock = field(default_factory=threading.Lock)

    def charge(self, key: str) -> None:
        client = Client(key, self.ports, self.again)
        charge = {"amount_credit": 1, "source_id": "load"}
        client.call("POST", "/auxilia/credits/consume", json=charge)
        with self._count:
            self.charged += 1

    def come_and_go(self, key: str, list_id: int) -> None:
        client = Client(key, self.ports, self.again)
        client.call("POST", f"/subscriptions/{list_id}/no-challenge")
        client.call("DELETE", f"/subscriptions/{list_id}")

    @contextmanager
    def going_on(self, *acts: Callable[[], None]) -> Iterator[None]:
        threads = [threading.Thread(target=self._repeat, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(120)
        assert self._faults == []

    def _repeat(self, act: Callable[[], None]) -> None:
        try:
            while not self._over.is_set():
                began = time.monotonic()
                act()
                self.longest = max(self.longest, time.monotonic() - began)
        except BaseException as error:  # noqa: BLE001 - the thread of the test raises it
            self._faults.append(error)


@dataclass(frozen=True)
class Deployment:
    owner: Owner
    list_id: int
    readers: list[str]


def settle_in(before: ReleaseBefore) -> Deployment:
    """An owner with credits and a list, readers, and the rows of some years."""
    email = "owner@example.com"
    before.command("users", "create", email, "--name", "Ada", "--password", "a long password")
    before.command("users", "plan", email, "paid")
    before.command("credits", "grant", email, "1000000")
    key = before.command("keys", "create", email, "--name", "load")["key"]
    list_id = before.command("lists", "create", email, "--title", "Old", "--slug", "old")["id"]
    readers = []
    for number in range(CALLERS):
        reader = f"reader@{number}.example"
        before.command("users", "create", reader, "--name", "R", "--password", "a long password")
        readers.append(before.command("keys", "create", reader, "--name", "load")["key"])
    [(owner_id,)] = before.stack.query("SELECT id FROM users WHERE email = %s", email)
    assert isinstance(owner_id, int)
    fill(before.stack, owner_id, list_id)
    return Deployment(Owner(owner_id, email, key), list_id, readers)


def fill(stack: Stack, owner_id: int, list_id: int) -> None:
    script = (Path(__file__).parent / "yesterday.sql").read_text()
    for name, value in (("size", SUBSCRIPTIONS), ("list", list_id), ("owner", owner_id)):
        script = script.replace(f":{name}", str(value))
    with contextlib.closing(psycopg2.connect(stack.owner_url)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in script.split(";"):
                if statement.strip():
                    cursor.execute(statement)


def file_of(rows: int) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(
        [("email", "name"), *((f"new{n}@example.net", n) for n in range(rows))]
    )
    return text.getvalue().encode()


def migrate(stack: Stack) -> str:
    """As an operator does it, with this release."""
    owner = stack.owner_url.replace("postgresql:", "postgresql+psycopg2:")
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "migrate"],
        cwd=ROOT,
        env={**stack.environment, "PRESSROOM_MIGRATION_DATABASE_URL": owner},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_oldest_release_is_upgraded_while_people_go_on(before: ReleaseBefore) -> None:
    stack = before.stack
    old_api, old_bulk = before.start_api(), before.start_worker("bulk")
    deployment = settle_in(before)
    load = Load([stack.api_port])
    client = Client(deployment.owner.key, load.ports, load.again)
    acts = [lambda: load.charge(deployment.owner.key)] * CALLERS
    acts += [
        lambda key=key: load.come_and_go(key, deployment.list_id)  # type: ignore[misc]
        for key in deployment.readers
    ]
    with load.going_on(*acts):
        file = {"file": ("members.csv", file_of(IMPORTED), "text/csv")}
        client.call("POST", f"/lists/{deployment.list_id}/imports", files=file)
        [(import_id,)] = stack.query("SELECT id FROM imports WHERE source = 'file'")
        migrate(stack)
        charged = load.charged
        # The release before goes on with the new tables,
        eventually(
            lambda: load.charged > charged + 50, within=120, what="charges by the release before"
        )
        # and beside this release,
        new_port = free_port()
        stack.start_api(new_port)
        stack.start_worker("bulk", concurrency=1)
        load.ports.append(new_port)
        charged = load.charged
        eventually(lambda: load.charged > charged + 50, within=120, what="charges by both releases")
        # until it ends.
        load.ports.remove(stack.api_port)
        old_bulk.stop()
        assert old_api.stop() == 0
        charged = load.charged
        eventually(lambda: load.charged > charged + 50, within=120, what="charges by this release")
        ended = "SELECT status <> 'running' FROM imports WHERE id = %s"
        eventually(
            lambda: stack.query(ended, import_id) == [(True,)], within=600, what="the import"
        )
    log.info("%s charges, slowest %.2f s, tried again: %s", load.charged, load.longest, load.again)
    done = "SELECT status, added, received FROM imports WHERE id = %s"
    assert stack.query(done, import_id) == [("succeeded", IMPORTED, IMPORTED)]
    members = "SELECT count(*) FROM subscriptions WHERE import_id = %s AND status = 'active'"
    assert stack.query(members, import_id) == [(IMPORTED,)]
    entries = "SELECT count(*) FROM credit_entries WHERE user_id = %s AND source_id = 'load'"
    assert stack.query(entries, deployment.owner.user_id) == [(load.charged,)]
    assert verify.verify(stack.resources, full=True).faults == []
    assert stack.query("SELECT version_num FROM alembic_version") == [(head_revision(),)]
