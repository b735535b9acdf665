"""The primary is killed under load, and its replica promoted: no answer that was given is lost."""

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg2
import pytest

from devstack.supervisor.programs import answers
from tests.contract.bulk import addresses, of_addresses, upload
from tests.contract.credits import grant
from tests.contract.replies import data
from tests.embedded import Services, embedded_services
from tests.faults.proxy import Proxy, proxied
from tests.faults.size import sized
from tests.ports import free_port
from tests.replica import RunningReplica, running_replica
from tests.stack import Owner, Stack, eventually, open_stack
from tests.subscribers import new_list

pytestmark = pytest.mark.timeout(300)

log = logging.getLogger(__name__)

CALLERS = 4
IMPORTED = sized(20_000, 500_000)
# What a caller notices of it at most.
HEALTHY_WITHIN = 30.0
_PAUSE = 0.1


@dataclass(frozen=True)
class Deployment:
    """A primary whose commits wait for its replica, and a proxy that leads to one of the two."""

    stack: Stack
    services: Services
    replica: RunningReplica
    proxy: Proxy

    def kill_primary(self) -> None:
        self.services.group["postgres"].send(signal.SIGKILL)

    def promote(self) -> None:
        """As a cluster manager does: the replica first, then the way to it."""
        self.replica.promote()
        self.proxy.lead_to(self.replica.port)

    def rows(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """From the replica."""
        url = self.replica.reached_as(self.stack.owner_url)
        with closing(psycopg2.connect(url)) as link, link.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall()


@pytest.fixture
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    home: Path = tmp_path_factory.mktemp("failover")
    with (
        embedded_services(home) as services,
        open_stack(services, home, "failover", 1, free_port()) as stack,
        running_replica(services) as replica,
        proxied(stack.environment["PRESSROOM_DATABASE_URL"]) as proxy,
    ):
        wait_for_replicas(stack)
        stack.environment["PRESSROOM_DATABASE_URL"] = proxy.url
        stack.start_api()
        stack.start_worker("bulk", concurrency=1)
        yield Deployment(stack, services, replica, proxy)
        stack.stop()


def wait_for_replicas(stack: Stack) -> None:
    """Let each commit wait until the replica has it."""
    with closing(psycopg2.connect(stack.owner_url)) as link:
        link.autocommit = True
        with link.cursor() as cursor:
            cursor.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            cursor.execute("SELECT pg_reload_conf()")
    waits = "SELECT sync_state FROM pg_stat_replication"
    eventually(lambda: stack.query(waits) == [("sync",)], what="a synchronous replica")


@dataclass
class Charges:
    """Charges one after another, each with a key of its own, repeated until it is answered."""

    url: str
    key: str
    answered: list[str] = field(default_factory=list)
    longest: float = 0.0
    _faults: list[BaseException] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._repeat) for _ in range(CALLERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(HEALTHY_WITHIN * 2)
        assert self._faults == []

    def _repeat(self) -> None:
        headers = {"Authorization": f"Bearer {self.key}"}
        try:
            with httpx.Client(base_url=self.url, headers=headers, timeout=HEALTHY_WITHIN) as client:
                while not self._over.is_set():
                    self._charge(client)
        except BaseException as error:  # noqa: BLE001 - the thread of the test raises it
            self._faults.append(error)

    def _charge(self, client: httpx.Client) -> None:
        source, began = uuid4().hex, time.monotonic()
        while True:
            reply = client.post(
                "/auxilia/credits/consume",
                json={"amount_credit": 1, "source_id": source},
                headers={"Idempotency-Key": source},
            )
            took = time.monotonic() - began
            if reply.status_code == 200:
                break
            assert reply.status_code in (409, 503), reply.text
            assert took < HEALTHY_WITHIN, reply.text
            time.sleep(_PAUSE)
        self.longest = max(self.longest, took)
        self.answered.append(source)


def payer(stack: Stack) -> Owner:
    owner = stack.new_owner()
    grant(stack, owner.user_id, "1000000")
    return owner


def test_nothing_that_was_answered_is_lost(deployed: Deployment) -> None:
    stack = deployed.stack
    owner = payer(stack)
    charges = Charges(stack.api_url, owner.key)
    with stack.client(owner.key) as client, charges.going_on():
        list_id = new_list(client)
        file = of_addresses(*addresses(IMPORTED))
        job_id = data(upload(client, list_id, file, prefer=None), 202)["id"]
        eventually(lambda: len(charges.answered) > 100, what="charges")
        deployed.kill_primary()
        before = len(charges.answered)
        deployed.promote()
        went_on = before + CALLERS + 100
        eventually(lambda: len(charges.answered) > went_on, within=60, what="charges after it")
        eventually(lambda: answers(stack.api_port, "/readyz"), what="/readyz")
        look = f"/jobs/{job_id}"
        eventually(
            lambda: client.get(look).json()["data"]["status"] == "succeeded",
            within=120,
            what="the import",
        )
    log.info("%s charges, slowest %.2f s", len(charges.answered), charges.longest)
    assert charges.longest < HEALTHY_WITHIN
    kept = deployed.rows(
        "SELECT source_id FROM credit_entries WHERE user_id = %s AND action = 'consume'",
        owner.user_id,
    )
    assert sorted(str(source) for (source,) in kept) == sorted(charges.answered)
    members = "SELECT count(*) FROM subscriptions WHERE list_id = %s AND status = 'active'"
    assert deployed.rows(members, list_id) == [(IMPORTED,)]
