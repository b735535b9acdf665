"""Tests that a cluster of several hosts loses no work if hosts, networks or services fail."""

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
    CLOCK_ERROR_SECONDS,
    MAX_RECOVERY_SECONDS,
    WORKERS,
    Cluster,
    running_cluster,
)
from tests.support.cluster.network import require_namespaces
from tests.support.images.pictures import photo
from tests.support.probe.kind import enqueue_probe
from tests.support.sizes import FULL, sized
from tests.support.stack.haproxy import find_haproxy
from tests.support.stack.load import Caller, Load, charge
from tests.support.stack.replica import wait_for_replicas

pytestmark = [pytest.mark.stack, pytest.mark.timeout(7200 if FULL else 1200)]

log = logging.getLogger(__name__)

SEED = 20_261_121
JOBS_PER_FAULT = sized(60, 200)
JOBS_BEFORE_FLUSH = sized(150, 1_000)
RANDOM_FAULTS = sized(0, 60)
# The outages in the tests last longer than the lease of a job, so that other workers take over the
# jobs.
OUTAGE_SECONDS = 6.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    require_namespaces()
    find_haproxy()
    home: Path = tmp_path_factory.mktemp("cluster")
    with running_cluster(home) as running:
        running.require_healthy()
        yield running


@dataclass
class Workload:
    """Makes API calls and enqueues jobs for an owner in the cluster, and checks the results."""

    cluster: Cluster
    owner: Owner
    list_id: int
    load: Load
    jobs: list[int] = field(default_factory=list)
    uploads: int = 0
    exports: int = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        actions = (charge, charge, self._upload)
        with self.load.running(*((self.owner.key, action) for action in actions)):
            yield

    def enqueue_jobs(self, count: int, seconds: float) -> None:
        """Request an export, and enqueue ``count`` jobs that take ``seconds`` each."""
        with closing(Caller(self.load, self.owner.key)) as caller:
            path = f"/lists/{self.list_id}/exports"
            headers = {"Prefer": "wait=0"}
            caller.call("POST", path, headers=headers, json={"kind": "members"})
        self.exports += 1
        with self.cluster.stack.resources.unit_of_work() as uow:
            self.jobs += [enqueue_probe(uow, {"sleep": seconds}).id for _ in range(count)]

    def require_jobs_done(self) -> None:
        """Require that each committed job ends within a minute, and has its effect only once."""
        query = self.cluster.stack.query
        unfinished = "SELECT id FROM jobs WHERE id = ANY(%s) AND finished_at IS NULL"
        eventually(
            lambda: not query(unfinished, self.jobs), within=MAX_RECOVERY_SECONDS, what="all jobs"
        )
        results = "SELECT DISTINCT status, error::text FROM jobs WHERE id = ANY(%s)"
        assert query(results, self.jobs) == [("succeeded", None)]
        effects = (
            "SELECT count(*), count(DISTINCT job_id) FROM probe_effects WHERE job_id = ANY(%s)"
        )
        assert query(effects, self.jobs) == [(len(self.jobs),) * 2]

    def require_all_done(self) -> None:
        """Require that all calls, jobs and charges were processed exactly once.

        A test must stop all callers before it calls ``require_all_done``.
        """
        stack = self.cluster.stack
        self.require_jobs_done()
        self.cluster.bench.all_finished(within=MAX_RECOVERY_SECONDS)
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
        # Wait after each upload, because more uploads would only measure the speed of this machine.
        time.sleep(0.5)


@pytest.fixture
def traffic(cluster: Cluster) -> Workload:
    stack = cluster.stack
    owner = stack.create_owner()
    ledger.grant_credits(
        stack.resources.database, owner.account_id, Decimal(10_000_000), source_id="start"
    )
    with stack.resources.unit_of_work() as uow:
        slug = f"of-{owner.user_id}"
        list_id = lists.create_list(uow, account_id=owner.account_id, title="A list", slug=slug).id
    return Workload(cluster, owner, list_id, Load(cluster.front.url))


def cut_power_of_hosts(cluster: Cluster, api: str = "api1", worker: str = "worker2") -> None:
    cluster.lose_power(api, worker)
    time.sleep(OUTAGE_SECONDS)
    cluster.get_power(api, worker)


def unplug_hosts(cluster: Cluster, api: str = "api2", worker: str = "worker1") -> None:
    with cluster.unplugged(api, worker, "replica"):
        time.sleep(OUTAGE_SECONDS)


def separate_hosts_from_stores(
    cluster: Cluster, api: str = "api1", worker: str = "worker1"
) -> None:
    with cluster.partitioned((worker, "postgres"), (api, cluster.host_of_broker()), (api, "s3")):
        time.sleep(OUTAGE_SECONDS)


def kill_database(cluster: Cluster) -> None:
    """Kill the database, which its supervisor restarts."""
    cluster.services.restart("postgres")


def cut_power_of_broker(cluster: Cluster) -> None:
    """Cut the power of the host whose Redis is the broker, and turn the power on again.

    The Redis on another host becomes the broker. After the restart, the Redis on the first host is
    a replica of the new broker.
    """
    lost_host = cluster.host_of_broker()
    cluster.lose_power(lost_host)
    cluster.host_of_broker(other_than=lost_host)
    cluster.get_power(lost_host)


HOST_FAULTS: tuple[Callable[..., None], ...] = (
    cut_power_of_hosts,
    unplug_hosts,
    separate_hosts_from_stores,
)
FAULTS = (*HOST_FAULTS, kill_database, cut_power_of_broker)


def cause_fault_and_recover(
    traffic: Workload, cause_fault: Callable[..., None], **hosts: str
) -> None:
    """Cause a fault under load, and require that all hosts serve again within a minute."""
    traffic.enqueue_jobs(JOBS_PER_FAULT, 0.1)
    cause_fault(traffic.cluster, **hosts)
    began_at = time.monotonic()
    traffic.cluster.require_healthy()
    traffic.load.require_more(20)
    seconds = time.monotonic() - began_at
    log.info("%s %s: healthy after %.1f s", cause_fault.__name__, hosts, seconds)
    traffic.require_jobs_done()


def test_cluster_hosts_have_different_clocks(cluster: Cluster) -> None:
    right_time, wrong_time = (parsedate_to_datetime(cluster.clock_of(name)) for name in APIS)
    assert abs((right_time - wrong_time).total_seconds() - CLOCK_ERROR_SECONDS) < 5


def test_cluster_recovers_from_host_failures_and_does_all_work_exactly_once(
    traffic: Workload,
) -> None:
    dice = random.Random(SEED)
    with traffic.running():
        for cause_fault in FAULTS:
            cause_fault_and_recover(traffic, cause_fault)
        for _ in range(RANDOM_FAULTS):
            hosts = {"api": dice.choice(APIS), "worker": dice.choice(WORKERS)}
            cause_fault = dice.choice(FAULTS)
            if cause_fault not in HOST_FAULTS:
                hosts = {}
            cause_fault_and_recover(traffic, cause_fault, **hosts)
    log.info("slowest call %.1f s, tried again: %s", traffic.load.longest, traffic.load.retried)
    traffic.require_all_done()


def test_broker_flush_in_the_cluster_loses_no_job(traffic: Workload) -> None:
    traffic.enqueue_jobs(JOBS_BEFORE_FLUSH, 0.02)
    traffic.cluster.flush_broker()
    traffic.require_jobs_done()


def test_no_answered_work_is_lost_if_the_database_host_loses_power(traffic: Workload) -> None:
    """The database host stops responding without closing its connections.

    This test is the last test of the file, because the database host stays without power and the
    other tests need the host.
    """
    cluster = traffic.cluster
    wait_for_replicas(cluster.stack)
    with traffic.running():
        traffic.enqueue_jobs(JOBS_PER_FAULT, 0.1)
        traffic.load.require_more(20)
        cluster.lose_power("postgres")
        cluster.promote_replica()
        began_at = time.monotonic()
        cluster.require_healthy()
        traffic.load.require_more(20)
        log.info("replica promoted: healthy after %.1f s", time.monotonic() - began_at)
    log.info("slowest call %.1f s, tried again: %s", traffic.load.longest, traffic.load.retried)
    traffic.require_all_done()
