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

from devstack import LOOPBACK
from devstack.harness.embedded_services import Services
from devstack.harness.stack import Stack
from services.credits import ledger, verify
from services.jobs.lease import Lease
from services.subscriptions import exports, lists
from services.subscriptions.export_sheets import ExportKind
from storage.database import open_replica
from storage.long_reads import FAILURES_OF_REPLICA, LongReads, ReplicaFailed
from storage.resources import Resources, open_resources
from tests.support.imports.importing import Importing, new_addresses
from tests.support.lists.subscribers import fill
from tests.support.stack.replica import RunningReplica, running_replica

MINUTE = timedelta(minutes=1)
SHORT = timedelta(seconds=0.5)
IS_REPLICA = text("SELECT pg_is_in_recovery()")
COUNT = text("SELECT count(*) FROM seen")


@pytest.fixture(scope="module")
def whole(make_stack: Callable[[str], Stack]) -> Stack:
    """The database that has a replica."""
    stack = make_stack("whole")
    stack.query("CREATE TABLE seen (id bigint PRIMARY KEY)")
    stack.query("GRANT ALL ON seen TO PUBLIC")
    return stack


@pytest.fixture(scope="module")
def replica(services: Services, whole: Stack) -> Iterator[RunningReplica]:
    with running_replica(services) as running:
        yield replace(running, owner_url=running.reached_as(whole.owner_url))


@pytest.fixture
def read_url(whole: Stack, replica: RunningReplica) -> SecretStr:
    return secret(replica.reached_as(whole.settings().database_url.get_secret_value()))


@pytest.fixture
def reading(whole: Stack, read_url: SecretStr) -> Iterator[Resources]:
    settings = whole.settings().model_copy(update={"read_database_url": read_url})
    opened = open_resources(settings, concurrency=4, name="reading")
    yield opened
    opened.close()


def secret(url: str) -> SecretStr:
    """As the settings have it."""
    return SecretStr(url.replace("postgresql://", "postgresql+psycopg2://"))


def elsewhere(reading: Resources, url: str) -> LongReads:
    """As with another replica, at this URL."""
    other = open_replica(secret(url), application_name="other")
    return replace(reading.long_reads, replica=other)


class TrustingReads(LongReads):
    def _is_useful(self, replica: Engine) -> bool:
        return True


def broken(reading: Resources) -> Resources:
    """With a replica that is as it should be until one reads from it."""
    gone = elsewhere(reading, f"postgresql://x@{LOOPBACK}:1/x").replica
    return replace(reading, long_reads=TrustingReads(reading.database.engine, gone))


@contextmanager
def one_more(stack: Stack, reads: LongReads) -> Iterator[Connection]:
    """A view that is asked for when a row was just committed, and has to have it."""
    stack.query("INSERT INTO seen SELECT count(*) FROM seen")
    with reads.view(MINUTE, failures=0) as connection:
        assert connection.scalar(COUNT) == stack.query("SELECT count(*) FROM seen")[0][0]
        yield connection


def test_replica_shows_all_that_was_committed_before(whole: Stack, reading: Resources) -> None:
    for _ in range(30):
        with one_more(whole, reading.long_reads) as connection:
            assert connection.scalar(IS_REPLICA) is True


def test_replica_that_is_late_for_a_moment_is_waited_for(
    whole: Stack, reading: Resources, replica: RunningReplica
) -> None:
    with replica.paused():
        soon = threading.Timer(0.5, replica.resume)
        soon.start()
        with one_more(whole, replace(reading.long_reads, max_wait=MINUTE)) as connection:
            assert connection.scalar(IS_REPLICA) is True
        soon.join()


@pytest.mark.parametrize(
    "trouble",
    [
        RunningReplica.paused,
        # As long as connecting may take.
        pytest.param(RunningReplica.stopped, marks=pytest.mark.tier("processes")),
    ],
)
def test_replica_that_stays_late_or_answers_nothing_is_passed_over(
    whole: Stack,
    reading: Resources,
    replica: RunningReplica,
    trouble: Callable[[RunningReplica], AbstractContextManager[None]],
) -> None:
    hasty = replace(reading.long_reads, max_wait=SHORT)
    with trouble(replica), one_more(whole, hasty) as connection:
        assert connection.scalar(IS_REPLICA) is False


def test_database_that_is_no_replica_is_passed_over(whole: Stack, reading: Resources) -> None:
    """Such as a replica that became a primary: what it lacks is committed somewhere else."""
    own = elsewhere(reading, whole.settings().database_url.get_secret_value())
    with one_more(whole, own) as connection:
        name = connection.scalar(text("SELECT current_setting('application_name')"))
        assert name == "pressroom-reading"


def test_read_that_the_replica_ends_begins_again_and_then_on_the_primary(
    whole: Stack, reading: Resources, replica: RunningReplica
) -> None:
    whole.query("INSERT INTO seen SELECT generate_series(1000, 2000)")

    def read(failures: int) -> bool:
        with reading.long_reads.view(MINUTE, failures=failures) as connection:
            is_replica = bool(connection.scalar(IS_REPLICA))
            connection.execute(COUNT)
            whole.query("DELETE FROM seen WHERE id >= 1000")
            vacuum(whole)
            whole.query("INSERT INTO seen SELECT generate_series(1000, 2000)")
            for _ in range(50):
                connection.execute(text("SELECT count(*), pg_sleep(0.1) FROM seen"))
                if not is_replica:
                    break
            return is_replica

    with replica.impatient():
        for failures in range(FAILURES_OF_REPLICA):
            with pytest.raises(ReplicaFailed):
                read(failures)
        assert read(FAILURES_OF_REPLICA) is False


def vacuum(stack: Stack) -> None:
    with closing(psycopg2.connect(stack.owner_url)) as session:
        session.autocommit = True
        session.cursor().execute("VACUUM seen")


@pytest.fixture
def export(whole: Stack) -> Lease:
    """An export of a list whose member was just committed, at its first attempt."""
    importing, owner = Importing(whole), whole.new_owner()
    list_id = importing.new_list(owner)
    fill(whole, list_id, new_addresses(1))
    with whole.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, list_id)
        job = exports.enqueue_export(uow, owner.user_id, mailing_list, ExportKind.MEMBERS)
    return importing.lease(job.id)


def result(stack: Stack, lease: Lease) -> object:
    return stack.query("SELECT status, result->>'rows' FROM jobs WHERE id = %s", lease.job_id)


def test_export_reads_from_the_replica(
    whole: Stack, reading: Resources, replica: RunningReplica, export: Lease
) -> None:
    exports.write_export(reading, export)
    assert result(whole, export) == [("succeeded", "1")]
    assert "FROM subscriptions" in replica.log()


def test_export_that_the_replica_ends_is_tried_again_and_then_on_the_primary(
    whole: Stack, reading: Resources, export: Lease
) -> None:
    for failures in range(FAILURES_OF_REPLICA):
        with pytest.raises(ReplicaFailed):
            exports.write_export(broken(reading), replace(export, retries=failures))
    exports.write_export(broken(reading), replace(export, retries=FAILURES_OF_REPLICA))
    assert result(whole, export) == [("succeeded", "1")]


def test_check_of_the_ledger_reads_from_the_replica_and_signs_on_the_primary(
    whole: Stack, reading: Resources, replica: RunningReplica
) -> None:
    user_id = whole.new_owner().user_id
    for run in range(3):
        ledger.grant_credits(whole.resources.database, user_id, Decimal(1), source_id="x")
        report = verify.verify_ledger(reading, full=False)
        assert (report.faults, report.resumed, report.entries) == ([], min(run, 1), 1)
    assert "FROM credit_entries" in replica.log()


def test_check_of_the_ledger_that_the_replica_ends_is_done_on_the_primary(
    whole: Stack, reading: Resources
) -> None:
    ledger.grant_credits(
        whole.resources.database, whole.new_owner().user_id, Decimal(1), source_id="x"
    )
    report = verify.verify_ledger(broken(reading), full=True)
    assert report.entries > 0
    assert report.faults == []
