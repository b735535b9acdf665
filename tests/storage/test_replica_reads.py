"""Tests that long queries use the replica, or the primary if the replica lags or is down."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import psycopg2
import pytest
from pydantic import SecretStr
from sqlalchemy import Connection, Engine, text

from core.ids import AccountId
from devstack import LOOPBACK
from devstack.harness.embedded_services import Services
from devstack.harness.stack import Stack
from services.credits import ledger, verify
from services.jobs.lease import Lease
from services.subscriptions import exports, lists
from services.subscriptions.export_sheets import ExportKind
from storage.database import open_replica
from storage.replica_reads import MAX_REPLICA_FAILURES, ReplicaFailed, ReplicaReads
from storage.resources import Resources, open_resources
from tests.support.imports.importing import ImportRunner, new_addresses
from tests.support.lists.subscribers import insert_members
from tests.support.stack.replica import RunningReplica, running_replica

ONE_MINUTE = timedelta(minutes=1)
SHORT_WAIT = timedelta(seconds=0.5)
IS_REPLICA = text("SELECT pg_is_in_recovery()")
COUNT_ROWS = text("SELECT count(*) FROM seen")


@pytest.fixture(scope="module")
def primary_stack(make_stack: Callable[[str], Stack]) -> Stack:
    """A test stack without running processes, for tests that add a replica to its Postgres."""
    stack = make_stack("whole")
    stack.query("CREATE TABLE seen (id bigint PRIMARY KEY)")
    stack.query("GRANT ALL ON seen TO PUBLIC")
    return stack


@pytest.fixture(scope="module")
def replica(services: Services, primary_stack: Stack) -> Iterator[RunningReplica]:
    with running_replica(services) as running:
        yield replace(running, owner_url=running.build_url(primary_stack.owner_url))


@pytest.fixture
def replica_url(primary_stack: Stack, replica: RunningReplica) -> SecretStr:
    return secret_url(replica.build_url(primary_stack.settings().database_url.get_secret_value()))


@pytest.fixture
def replica_resources(primary_stack: Stack, replica_url: SecretStr) -> Iterator[Resources]:
    """Database connections and other resources, which use the replica for long queries."""
    settings = primary_stack.settings().model_copy(update={"read_database_url": replica_url})
    opened = open_resources(settings, concurrency=4, name="reading")
    yield opened
    opened.close()


def secret_url(url: str) -> SecretStr:
    """Return a URL with the scheme ``postgresql+psycopg2``, which the database settings require."""
    return SecretStr(url.replace("postgresql://", "postgresql+psycopg2://"))


def reads_with_replica(replica_resources: Resources, url: str) -> ReplicaReads:
    """Return a ``ReplicaReads`` object that uses the database at ``url`` as its replica."""
    other_replica = open_replica(secret_url(url), application_name="other")
    return replace(replica_resources.replica_reads, replica=other_replica)


class UncheckedReads(ReplicaReads):
    """A variant of ``ReplicaReads`` that doesn't check whether the replica is up to date."""

    def _has_caught_up(self, replica: Engine) -> bool:
        return True


def with_broken_replica(replica_resources: Resources) -> Resources:
    """Return a copy of ``replica_resources`` with an unreachable replica of the database.

    The copy sends queries to the unreachable replica, because ``UncheckedReads`` doesn't check
    whether the replica is up to date.
    """
    broken_replica = reads_with_replica(replica_resources, f"postgresql://x@{LOOPBACK}:1/x").replica
    return replace(
        replica_resources,
        replica_reads=UncheckedReads(replica_resources.database.engine, broken_replica),
    )


@contextmanager
def view_of_new_row(stack: Stack, reads: ReplicaReads) -> Iterator[Connection]:
    """Commit a row on the primary, check that a read finds it, and yield the read's connection."""
    stack.query("INSERT INTO seen SELECT count(*) FROM seen")
    with reads.view(ONE_MINUTE, failures=0) as connection:
        assert connection.scalar(COUNT_ROWS) == stack.query("SELECT count(*) FROM seen")[0][0]
        yield connection


def test_replica_read_includes_everything_committed_before(
    primary_stack: Stack, replica_resources: Resources
) -> None:
    for _ in range(30):
        with view_of_new_row(primary_stack, replica_resources.replica_reads) as connection:
            assert connection.scalar(IS_REPLICA) is True


def test_replica_read_waits_for_a_briefly_lagging_replica(
    primary_stack: Stack, replica_resources: Resources, replica: RunningReplica
) -> None:
    with replica.paused():
        timer = threading.Timer(0.5, replica.resume)
        timer.start()
        with view_of_new_row(
            primary_stack, replace(replica_resources.replica_reads, max_wait=ONE_MINUTE)
        ) as connection:
            assert connection.scalar(IS_REPLICA) is True
        timer.join()


@pytest.mark.parametrize(
    "disturb",
    [
        RunningReplica.paused,
        # With a stopped replica, the test waits until a connection to the replica times out.
        pytest.param(RunningReplica.stopped, marks=pytest.mark.tier("processes")),
    ],
)
def test_read_falls_back_to_the_primary_when_the_replica_lags_or_is_down(
    primary_stack: Stack,
    replica_resources: Resources,
    replica: RunningReplica,
    disturb: Callable[[RunningReplica], AbstractContextManager[None]],
) -> None:
    impatient_reads = replace(replica_resources.replica_reads, max_wait=SHORT_WAIT)
    with disturb(replica), view_of_new_row(primary_stack, impatient_reads) as connection:
        assert connection.scalar(IS_REPLICA) is False


def test_read_replica_that_is_no_longer_a_replica_is_not_used(
    primary_stack: Stack, replica_resources: Resources
) -> None:
    """A replica that was promoted to a primary gets no further rows from the old primary."""
    database_url = primary_stack.settings().database_url.get_secret_value()
    reads = reads_with_replica(replica_resources, database_url)
    with view_of_new_row(primary_stack, reads) as connection:
        name = connection.scalar(text("SELECT current_setting('application_name')"))
        assert name == "pressroom-reading"


def test_read_cancelled_by_the_replica_is_retried_and_finally_uses_the_primary(
    primary_stack: Stack, replica_resources: Resources, replica: RunningReplica
) -> None:
    primary_stack.query("INSERT INTO seen SELECT generate_series(1000, 2000)")

    def read(failures: int) -> bool:
        with replica_resources.replica_reads.view(ONE_MINUTE, failures=failures) as connection:
            is_replica = bool(connection.scalar(IS_REPLICA))
            connection.execute(COUNT_ROWS)
            primary_stack.query("DELETE FROM seen WHERE id >= 1000")
            vacuum(primary_stack)
            primary_stack.query("INSERT INTO seen SELECT generate_series(1000, 2000)")
            for _ in range(50):
                connection.execute(text("SELECT count(*), pg_sleep(0.1) FROM seen"))
                if not is_replica:
                    break
            return is_replica

    with replica.impatient():
        for failures in range(MAX_REPLICA_FAILURES):
            with pytest.raises(ReplicaFailed):
                read(failures)
        assert read(MAX_REPLICA_FAILURES) is False


def vacuum(stack: Stack) -> None:
    with closing(psycopg2.connect(stack.owner_url)) as session:
        session.autocommit = True
        session.cursor().execute("VACUUM seen")


@pytest.fixture
def export_lease(primary_stack: Stack) -> Lease:
    """The lease of the first attempt to export a list with one member."""
    importing = ImportRunner(primary_stack)
    owner = primary_stack.create_owner()
    list_id = importing.new_list(owner)
    insert_members(primary_stack, list_id, new_addresses(1))
    with primary_stack.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, list_id)
        job = exports.enqueue_export(uow, owner.account_id, mailing_list, ExportKind.MEMBERS)
    return importing.lease(job.id)


def read_job_result(stack: Stack, lease: Lease) -> object:
    return stack.query("SELECT status, result->>'rows' FROM jobs WHERE id = %s", lease.job_id)


def test_export_reads_from_the_replica(
    primary_stack: Stack, replica_resources: Resources, replica: RunningReplica, export_lease: Lease
) -> None:
    exports.write_export(replica_resources, export_lease)
    assert read_job_result(primary_stack, export_lease) == [("succeeded", "1")]
    assert "FROM subscriptions" in replica.log()


def test_export_cancelled_by_the_replica_is_retried_and_finally_uses_the_primary(
    primary_stack: Stack, replica_resources: Resources, export_lease: Lease
) -> None:
    for failures in range(MAX_REPLICA_FAILURES):
        with pytest.raises(ReplicaFailed):
            exports.write_export(
                with_broken_replica(replica_resources), replace(export_lease, retries=failures)
            )
    exports.write_export(
        with_broken_replica(replica_resources), replace(export_lease, retries=MAX_REPLICA_FAILURES)
    )
    assert read_job_result(primary_stack, export_lease) == [("succeeded", "1")]


def test_ledger_verification_reads_from_the_replica_and_signs_on_the_primary(
    primary_stack: Stack, replica_resources: Resources, replica: RunningReplica
) -> None:
    user_id = primary_stack.create_owner().user_id
    for run in range(3):
        ledger.grant_credits(
            primary_stack.resources.database, AccountId(user_id), Decimal(1), source_id="x"
        )
        report = verify.verify_ledger(replica_resources, full=False)
        assert (report.faults, report.resumed, report.entries) == ([], min(run, 1), 1)
    assert "FROM credit_entries" in replica.log()


def test_ledger_verification_falls_back_to_the_primary_when_the_replica_fails(
    primary_stack: Stack, replica_resources: Resources
) -> None:
    ledger.grant_credits(
        primary_stack.resources.database,
        AccountId(primary_stack.create_owner().user_id),
        Decimal(1),
        source_id="x",
    )
    report = verify.verify_ledger(with_broken_replica(replica_resources), full=True)
    assert report.entries > 0
    assert report.faults == []
