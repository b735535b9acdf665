import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner
from services.credits import ledger, verify
from services.subscriptions import lists
from tests.support.cluster.machines import (
    APIS,
    HEALTHY_WITHIN,
    WORKERS,
    WRONG_BY_SECONDS,
    Cluster,
    running_cluster,
)
from tests.support.cluster.network import require_namespaces
from tests.support.images.pictures import photo
from tests.support.probe.kind import plan
from tests.support.sizes import FULL, sized
from tests.support.stack.haproxy import program
from tests.support.stack.load import Caller, Load, charge
from tests.support.stack.replica import wait_for_replicas

pytestmark = [pytest.mark.stack, pytest.mark.timeout(7200 if FULL else 420)]

log = logging.getLogger(__name__)

SEED = 20_261_121
JOBS = sized(60, 200)
FLUSHED = sized(150, 1_000)
ROUNDS = sized(0, 60)
# Longer than a lease, so that others take the work over.
APART_SECONDS = 6.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    require_namespaces()
    program()
    home: Path = tmp_path_factory.mktemp("cluster")
    with running_cluster(home) as running:
        running.require_healthy()
        yield running


@dataclass
class Work:
    """What people ask of the cluster, and what it must come to."""

    cluster: Cluster
    owner: Owner
    list_id: int
    load: Load
    jobs: list[int] = field(default_factory=list)
    uploads: int = 0
    exports: int = 0

    @contextmanager
    def going_on(self) -> Iterator[None]:
        actions = (charge, charge, self._upload)
        with self.load.going_on(*((self.owner.key, action) for action in actions)):
            yield

    def ask_for_jobs(self, count: int, seconds: float) -> None:
        """Commit an export and so many jobs, of which each takes so long."""
        with closing(Caller(self.load, self.owner.key)) as caller:
            path, headers = f"/lists/{self.list_id}/exports", {"Prefer": "wait=0"}
            caller.call("POST", path, headers=headers, json={"kind": "members"})
        self.exports += 1
        with self.cluster.stack.resources.unit_of_work() as uow:
            self.jobs += [plan(uow, {"sleep": seconds}).id for _ in range(count)]

    def require_jobs_done(self) -> None:
        """Each committed job is done within a minute, and did what it does once."""
        query = self.cluster.stack.query
        unfinished = "SELECT id FROM jobs WHERE id = ANY(%s) AND finished_at IS NULL"
        eventually(lambda: not query(unfinished, self.jobs), within=HEALTHY_WITHIN, what="all jobs")
        ends = "SELECT DISTINCT status, error::text FROM jobs WHERE id = ANY(%s)"
        assert query(ends, self.jobs) == [("succeeded", None)]
        effects = (
            "SELECT count(*), count(DISTINCT job_id) FROM probe_effects WHERE job_id = ANY(%s)"
        )
        assert query(effects, self.jobs) == [(len(self.jobs),) * 2]

    def require_all_done(self) -> None:
        """Once its callers have left."""
        stack = self.cluster.stack
        self.require_jobs_done()
        self.cluster.bench.all_finished(within=HEALTHY_WITHIN)
        ended = (
            "SELECT kind, status, count(*) FROM jobs WHERE user_id = %s GROUP BY 1, 2 ORDER BY 1"
        )
        assert stack.query(ended, self.owner.user_id) == [
            ("attachment.process", "succeeded", self.uploads),
            ("export.members", "succeeded", self.exports),
        ]
        charges = "SELECT count(*) FROM credit_entries WHERE user_id = %s AND source_id = 'load'"
        assert stack.query(charges, self.owner.user_id) == [(self.load.done,)]
        assert verify.verify_ledger(stack.resources, full=True).faults == []

    def _upload(self, caller: Caller) -> None:
        files = {"file": ("photo.jpg", photo(160, 120))}
        caller.call("POST", "/attachments", files=files)
        self.uploads += 1
        # To convert more of them would measure this machine.
        time.sleep(0.5)


@pytest.fixture
def traffic(cluster: Cluster) -> Work:
    stack = cluster.stack
    owner = stack.create_owner()
    ledger.grant_credits(
        stack.resources.database, owner.user_id, Decimal(10_000_000), source_id="start"
    )
    with stack.resources.unit_of_work() as uow:
        slug = f"of-{owner.user_id}"
        list_id = lists.create_list(uow, owner_id=owner.user_id, title="A list", slug=slug).id
    return Work(cluster, owner, list_id, Load(cluster.front.url))


def hosts_lose_power(cluster: Cluster, api: str = "api1", worker: str = "worker2") -> None:
    cluster.lose_power(api, worker)
    time.sleep(APART_SECONDS)
    cluster.get_power(api, worker)


def hosts_are_unplugged(cluster: Cluster, api: str = "api2", worker: str = "worker1") -> None:
    with cluster.unplugged(api, worker, "replica"):
        time.sleep(APART_SECONDS)


def hosts_lose_stores(cluster: Cluster, api: str = "api1", worker: str = "worker1") -> None:
    with cluster.apart((worker, "postgres"), (api, cluster.host_of_broker()), (api, "s3")):
        time.sleep(APART_SECONDS)


def database_is_killed(cluster: Cluster) -> None:
    """It is started again by what runs it."""
    cluster.services.restart("postgres")


def host_of_broker_loses_power(cluster: Cluster) -> None:
    """The other Redis takes over, and this one follows it when it is back."""
    lost = cluster.host_of_broker()
    cluster.lose_power(lost)
    cluster.host_of_broker(other_than=lost)
    cluster.get_power(lost)


OF_HOSTS: tuple[Callable[..., None], ...] = (
    hosts_lose_power,
    hosts_are_unplugged,
    hosts_lose_stores,
)
EVENTS = (*OF_HOSTS, database_is_killed, host_of_broker_loses_power)


def hurt(traffic: Work, event: Callable[..., None], **hosts: str) -> None:
    """Let it happen to hosts that have work to do: within a minute all of them serve again."""
    traffic.ask_for_jobs(JOBS, 0.1)
    event(traffic.cluster, **hosts)
    began = time.monotonic()
    traffic.cluster.require_healthy()
    traffic.load.require_more(20)
    log.info("%s %s: healthy after %.1f s", event.__name__, hosts, time.monotonic() - began)
    traffic.require_jobs_done()


def test_cluster_hosts_have_different_clocks(cluster: Cluster) -> None:
    right, wrong = (parsedate_to_datetime(cluster.clock_of(name)) for name in APIS)
    assert abs((right - wrong).total_seconds() - WRONG_BY_SECONDS) < 5


def test_cluster_recovers_from_host_failures_and_does_all_work_exactly_once(traffic: Work) -> None:
    dice = random.Random(SEED)
    with traffic.going_on():
        for event in EVENTS:
            hurt(traffic, event)
        for _ in range(ROUNDS):
            hosts = {"api": dice.choice(APIS), "worker": dice.choice(WORKERS)}
            event = dice.choice(EVENTS)
            hurt(traffic, event, **(hosts if event in OF_HOSTS else {}))
    log.info("slowest call %.1f s, tried again: %s", traffic.load.longest, traffic.load.again)
    traffic.require_all_done()


def test_broker_flush_in_the_cluster_loses_no_job(traffic: Work) -> None:
    traffic.ask_for_jobs(FLUSHED, 0.02)
    traffic.cluster.flush_broker()
    traffic.require_jobs_done()


def test_no_answered_work_is_lost_if_the_database_host_loses_power(traffic: Work) -> None:
    """It goes silent: no connection is closed. The other tests ran on it, so this one is last."""
    cluster = traffic.cluster
    wait_for_replicas(cluster.stack)
    with traffic.going_on():
        traffic.ask_for_jobs(JOBS, 0.1)
        traffic.load.require_more(20)
        cluster.lose_power("postgres")
        cluster.promote_replica()
        began = time.monotonic()
        cluster.require_healthy()
        traffic.load.require_more(20)
        log.info("database elsewhere: healthy after %.1f s", time.monotonic() - began)
    log.info("slowest call %.1f s, tried again: %s", traffic.load.longest, traffic.load.again)
    traffic.require_all_done()
