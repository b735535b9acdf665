"""Tests that no acknowledged work is lost if the database fails over to its replica."""

import logging
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

import psycopg2
import pytest

from devstack.harness.embedded_services import Services, embedded_services
from devstack.harness.free_ports import free_port
from devstack.harness.opening import open_stack
from devstack.harness.polling import eventually
from devstack.harness.proxy import Proxy, open_proxy
from devstack.harness.stack import Owner, Stack
from devstack.supervisor.programs import is_responding
from tests.support.credits.credits import grant
from tests.support.http.replies import data
from tests.support.imports.bulk import build_address_file, build_addresses, upload
from tests.support.lists.people_on_lists import new_list
from tests.support.sizes import sized
from tests.support.stack.load import Caller, Load
from tests.support.stack.programs import TEST_PROGRAMS
from tests.support.stack.replica import RunningReplica, running_replica, wait_for_replicas

pytestmark = pytest.mark.tier("machines")

log = logging.getLogger(__name__)

CALLERS = 4
IMPORTED_ROWS = sized(20_000, 500_000)
# The maximum number of seconds that a call may take during the failover.
HEALTHY_WITHIN = 30.0
# Each error that a caller gets during the failover must start with one of these texts.
_EXPECTED_ERRORS = tuple(f"POST /auxilia/credits/consume: {status} " for status in (409, 503))


@dataclass(frozen=True)
class Deployment:
    """A primary database, its synchronous replica, and a proxy that forwards to one of them."""

    stack: Stack
    services: Services
    replica: RunningReplica
    proxy: Proxy

    def kill_primary(self) -> None:
        self.services.group["postgres"].send_signal(signal.SIGKILL)

    def promote(self) -> None:
        """Promote the replica, and then redirect the proxy to it, as a cluster manager does."""
        self.replica.promote()
        self.proxy.redirect_to(self.replica.port)

    def rows(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """Run a statement on the replica, and return its rows."""
        url = self.replica.build_url(self.stack.owner_url)
        with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall()


@pytest.fixture
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    home: Path = tmp_path_factory.mktemp("failover")
    with (
        embedded_services(home) as services,
        open_stack(services, home, "failover", 1, free_port(), programs=TEST_PROGRAMS) as stack,
        running_replica(services) as replica,
        open_proxy(stack.environment["PRESSROOM_DATABASE_URL"]) as proxy,
    ):
        wait_for_replicas(stack)
        stack.environment["PRESSROOM_DATABASE_URL"] = proxy.url
        stack.start_api()
        stack.start_worker("bulk", concurrency=1)
        yield Deployment(stack, services, replica, proxy)
        stack.stop()


def charge(acknowledged: list[str], caller: Caller) -> None:
    source_id = uuid4().hex
    body = {"amount_credit": 1, "source_id": source_id}
    caller.call("POST", "/auxilia/credits/consume", json=body)
    acknowledged.append(source_id)


def create_funded_owner(stack: Stack) -> Owner:
    owner = stack.create_owner()
    grant(stack, owner.user_id, "1000000")
    return owner


def test_no_answered_charge_or_import_is_lost_in_database_failover(deployment: Deployment) -> None:
    stack = deployment.stack
    owner = create_funded_owner(stack)
    load = Load(stack.api_url)
    acknowledged: list[str] = []
    actions = [(owner.key, partial(charge, acknowledged))] * CALLERS
    with stack.client(owner.key) as client, load.running(*actions):
        list_id = new_list(client)
        file = build_address_file(*build_addresses(IMPORTED_ROWS))
        job_id = data(upload(client, list_id, file, prefer=None), 202)["id"]
        eventually(lambda: len(acknowledged) > 100, what="charges")
        deployment.kill_primary()
        charges_before = len(acknowledged)
        deployment.promote()
        expected_charges = charges_before + CALLERS + 100
        eventually(
            lambda: len(acknowledged) > expected_charges,
            within=60,
            what="charges after the failover",
        )
        eventually(lambda: is_responding(stack.api_port, "/readyz"), what="/readyz")
        job_path = f"/jobs/{job_id}"
        eventually(
            lambda: client.get(job_path).json()["data"]["status"] == "succeeded",
            within=120,
            what="the import",
        )
    log.info("%s charges, slowest %.2f s", len(acknowledged), load.longest)
    # During the failover, the API responds with 503, or with 409 if the charge is in progress.
    assert all(each.startswith(_EXPECTED_ERRORS) for each in load.retried), load.retried
    assert load.longest < HEALTHY_WITHIN
    charges = deployment.rows(
        "SELECT source_id FROM credit_entries WHERE user_id = %s AND action = 'consume'",
        owner.user_id,
    )
    assert sorted(str(source_id) for (source_id,) in charges) == sorted(acknowledged)
    members = "SELECT count(*) FROM subscriptions WHERE list_id = %s AND status = 'active'"
    assert deployment.rows(members, list_id) == [(IMPORTED_ROWS,)]
