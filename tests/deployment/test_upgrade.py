"""From each release to this one, host by host under load: no call fails that its caller notices."""

import contextlib
import csv
import io
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg2
import pytest

from core.settings import Settings
from devstack import LOOPBACK
from services.money.credits import verify
from storage.migrations.run import head_revision
from tests import haproxy
from tests.deployment.release_before import ROOT, ReleaseBefore, releases, unpack
from tests.embedded import embedded_services
from tests.haproxy import SERVERS, Front, in_front
from tests.load import Act, Caller, Load
from tests.ports import free_port
from tests.sizes import FULL, sized
from tests.stack import Owner, Running, Stack, eventually, open_stack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(7200 if FULL else 420)]

log = logging.getLogger(__name__)

SUBSCRIPTIONS = sized(5_000, 20_000_000)
IMPORTED = sized(20_000, 1_000_000)
CALLERS = 2
# After each step so many charges must go well before the next.
CHARGES = 50
# As an operator runs the API, not as a test does, which waits for no proxy.
OPERATED = {
    "PRESSROOM_API_DRAIN": str(Settings.model_fields["api_drain"].default),
    "PRESSROOM_TRUSTED_PROXIES": LOOPBACK,
}


@pytest.fixture(params=releases())
def before(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ReleaseBefore]:
    haproxy.program()
    home: Path = tmp_path_factory.mktemp("upgrade")
    folder = home / "release-before"
    unpack(request.param, folder)
    port = free_port()
    with (
        embedded_services(home) as services,
        open_stack(services, home, "upgrade", 1, port, migrated=False) as stack,
    ):
        release = ReleaseBefore(stack, folder)
        release.command("migrate")
        yield release


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


def charge(load: Load, caller: Caller) -> None:
    body = {"amount_credit": 1, "source_id": "load"}
    caller.call("POST", "/auxilia/credits/consume", json=body)
    load.count()


def come_and_go(list_id: int, caller: Caller) -> None:
    """Without a key: what a proxy may not make again must not fail."""
    caller.call("POST", f"/subscriptions/{list_id}/no-challenge", keyed=False)
    caller.call("DELETE", f"/subscriptions/{list_id}", keyed=False)


@dataclass
class Hosts:
    """Two hosts of the API behind a proxy, and two of workers: of one release, then of the next."""

    before: ReleaseBefore
    ports: tuple[int, int]
    apis: list[Running]
    workers: list[Running]

    def upgrade_api(self, front: Front, place: int, *, by_hand: bool) -> None:
        """Stop one host of the API and start it anew, with this release."""
        server = SERVERS[place]
        if by_hand:
            front.take_out(server)
        assert self.apis[place].stop() == 0
        self.apis[place] = self.before.stack.start_api(self.ports[place], **OPERATED)
        if by_hand:
            front.bring_in(server)
        front.await_up(server)

    def upgrade_worker(self, place: int) -> None:
        self.workers[place].stop()
        self.workers[place] = self.before.stack.start_worker("bulk", concurrency=1)


@pytest.fixture
def hosts(before: ReleaseBefore) -> Hosts:
    ports = free_port(), free_port()
    apis = [before.start_api(port, **OPERATED) for port in ports]
    return Hosts(before, ports, apis, [before.start_worker("bulk") for _ in range(2)])


@pytest.fixture
def front(hosts: Hosts) -> Iterator[Front]:
    one, two = (f"{LOOPBACK}:{port}" for port in hosts.ports)
    with in_front(hosts.before.stack, f"{LOOPBACK}:{free_port()}", (one, two)) as front:
        yield front


def test_hosts_are_upgraded_one_by_one_while_people_go_on(
    before: ReleaseBefore, hosts: Hosts, front: Front
) -> None:
    stack = before.stack
    deployment = settle_in(before)
    owner, list_id = deployment.owner, deployment.list_id
    load = Load(front.url)
    acts: list[tuple[str, Act]] = [(owner.key, partial(charge, load))] * CALLERS
    acts += [(reader, partial(come_and_go, list_id)) for reader in deployment.readers]
    with load.going_on(*acts):
        file = {"file": ("members.csv", file_of(IMPORTED), "text/csv")}
        Caller(load, owner.key).call("POST", f"/lists/{list_id}/imports", files=file)
        [(import_id,)] = stack.query("SELECT id FROM imports WHERE source = 'file'")
        migrate(stack)
        # The release before goes on with the new tables,
        load.require_more(CHARGES)
        migrated = len(load.again)
        for place in range(2):
            # and beside this release.
            hosts.upgrade_api(front, place, by_hand=not before.drains)
            load.require_more(CHARGES)
            hosts.upgrade_worker(place)
        # From here on a host says by itself that it ends.
        for place in range(2):
            hosts.upgrade_api(front, place, by_hand=False)
            load.require_more(CHARGES)
        ended = "SELECT status <> 'running' FROM imports WHERE id = %s"
        eventually(
            lambda: stack.query(ended, import_id) == [(True,)],
            within=sized(150, 3600),
            what="the import",
        )
    log.info("%s charges, slowest %.2f s, tried again: %s", load.done, load.longest, load.again)
    done = "SELECT status, added, received FROM imports WHERE id = %s"
    assert stack.query(done, import_id) == [("succeeded", IMPORTED, IMPORTED)]
    members = "SELECT count(*) FROM subscriptions WHERE import_id = %s AND status = 'active'"
    assert stack.query(members, import_id) == [(IMPORTED,)]
    entries = "SELECT count(*) FROM credit_entries WHERE user_id = %s AND source_id = 'load'"
    assert stack.query(entries, owner.user_id) == [(load.done,)]
    assert verify.verify(stack.resources, full=True).faults == []
    assert stack.query("SELECT version_num FROM alembic_version") == [(head_revision(),)]
    # No caller noticed a host that came or went.
    assert load.again[migrated:] == []
