from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Event, Thread

import pytest

from core.errors import DomainError
from core.queues import Queue
from devstack.harness.stack import Stack
from models import Maintenance
from services.jobs import maintenance
from services.jobs.lease import LeaseLost
from storage.resources import Resources
from storage.task_messages import queue_name
from tests.support.probe.tending import TEND


@pytest.fixture
def maintenance_resources(empty_stack: Stack) -> Iterator[Resources]:
    """Resources of a stack whose maintenance is all due, and whose queue ``bulk`` is empty."""
    maintenance.send_due_tasks(empty_stack.resources)
    empty_stack.query("UPDATE maintenance SET send_after = now()")
    forget_messages(empty_stack.resources)
    yield empty_stack.resources
    empty_stack.query("TRUNCATE maintenance")
    empty_stack.resources.redis.flushdb()


def forget_messages(maintenance_resources: Resources) -> int:
    """Delete all messages from the queue ``bulk``, and return how many messages it had."""
    waiting = int(maintenance_resources.redis.llen(queue_name(Queue.BULK)))
    maintenance_resources.redis.delete(queue_name(Queue.BULK))
    return waiting


def read_row(maintenance_resources: Resources) -> Maintenance:
    with maintenance_resources.unit_of_work() as uow:
        return uow.session.get_one(Maintenance, TEND.name)


def update_row(empty_stack: Stack, assignments: str) -> None:
    empty_stack.query(f"UPDATE maintenance SET {assignments} WHERE name = %s", TEND.name)


def count_runs(maintenance_resources: Resources) -> list[datetime]:
    runs: list[datetime] = []
    maintenance.run_if_due(maintenance_resources, TEND, runs.append)
    return runs


def test_due_maintenance_task_is_enqueued_once_and_again_if_no_worker_takes_it(
    empty_stack: Stack, maintenance_resources: Resources
) -> None:
    maintenance.send_due_tasks(maintenance_resources)
    maintenance.send_due_tasks(maintenance_resources)
    assert forget_messages(maintenance_resources) == 1
    update_row(empty_stack, "send_after = now()")
    maintenance.send_due_tasks(maintenance_resources)
    assert forget_messages(maintenance_resources) == 1


def test_maintenance_task_without_workers_is_enqueued_less_and_less_often(
    empty_stack: Stack, maintenance_resources: Resources
) -> None:
    update_row(empty_stack, "due_at = now() - interval '1 day'")
    maintenance.send_due_tasks(maintenance_resources)
    pause = empty_stack.query(
        "SELECT send_after - now() > '50 s' FROM maintenance WHERE name = %s", TEND.name
    )
    assert pause == [(True,)]


def test_maintenance_task_runs_once_per_interval_despite_a_duplicate_message(
    empty_stack: Stack, maintenance_resources: Resources
) -> None:
    assert len(count_runs(maintenance_resources)) == 1
    assert count_runs(maintenance_resources) == []
    record = read_row(maintenance_resources)
    assert record.last_finished_at is not None
    assert record.due_at - record.last_finished_at == TEND.every
    assert (record.lease_expires_at, record.last_error) == (None, None)
    maintenance.send_due_tasks(maintenance_resources)
    assert forget_messages(maintenance_resources) == 0
    update_row(empty_stack, "due_at = now()")
    assert len(count_runs(maintenance_resources)) == 1


def test_missed_maintenance_runs_are_not_repeated_later(
    empty_stack: Stack, maintenance_resources: Resources
) -> None:
    update_row(empty_stack, "due_at = now() - interval '1 day'")
    assert len(count_runs(maintenance_resources)) == 1
    assert count_runs(maintenance_resources) == []


def test_running_maintenance_task_is_neither_enqueued_nor_started_again(
    maintenance_resources: Resources,
) -> None:
    started = Event()
    release = Event()

    def work(_: datetime) -> int:
        started.set()
        assert release.wait(30)
        return 7

    thread = Thread(target=maintenance.run_if_due, args=(maintenance_resources, TEND, work))
    thread.start()
    try:
        assert started.wait(30)
        assert (
            maintenance.send_due_tasks(maintenance_resources) == len(maintenance.list_kinds()) - 1
        )
        assert forget_messages(maintenance_resources) == 0
        assert count_runs(maintenance_resources) == []
        with pytest.raises(DomainError) as error:
            maintenance.run_now(maintenance_resources, TEND, lambda _: 0)
        assert error.value.code == "maintenance.running"
    finally:
        release.set()
        thread.join()
    assert read_row(maintenance_resources).last_result == {"done": 7}


def test_maintenance_run_with_an_expired_lease_is_repeated_and_records_nothing(
    empty_stack: Stack, maintenance_resources: Resources
) -> None:
    def lose_lease(_: datetime) -> int:
        update_row(empty_stack, "lease_expires_at = now() - interval '1 second'")
        maintenance.run_if_due(maintenance_resources, TEND, lambda _: 2)
        return 1

    with pytest.raises(LeaseLost):
        maintenance.run_if_due(maintenance_resources, TEND, lose_lease)
    record = read_row(maintenance_resources)
    assert (record.attempt, record.last_result) == (2, {"done": 2})


def test_lost_maintenance_run_is_enqueued_again_when_its_lease_expires(
    empty_stack: Stack, maintenance_resources: Resources
) -> None:
    update_row(empty_stack, "lease_expires_at = now() + interval '5 seconds', send_after = now()")
    maintenance.send_due_tasks(maintenance_resources)
    assert forget_messages(maintenance_resources) == 0
    update_row(empty_stack, "lease_expires_at = now() - interval '1 second'")
    maintenance.send_due_tasks(maintenance_resources)
    assert forget_messages(maintenance_resources) == 1


def test_maintenance_run_over_its_time_limit_no_longer_renews_its_lease(
    maintenance_resources: Resources,
) -> None:
    task_without_time = replace(TEND, max_run=timedelta(0))

    def hang(_: datetime) -> None:
        # The heartbeat runs every second, but must not renew the lease of a run that has exceeded
        # its time limit.
        lease_expires_at = read_row(maintenance_resources).lease_expires_at
        Event().wait(2.5)
        assert read_row(maintenance_resources).lease_expires_at == lease_expires_at

    maintenance.run_if_due(maintenance_resources, task_without_time, hang)


def test_failed_maintenance_run_records_its_error_and_is_retried_soon(
    empty_stack: Stack, maintenance_resources: Resources
) -> None:
    def fail(_: datetime) -> int:
        raise ValueError("no such thing")

    count_runs(maintenance_resources)
    for every, pause in ((TEND.every, TEND.every), (timedelta(hours=1), timedelta(minutes=1))):
        update_row(empty_stack, "due_at = now()")
        kind = replace(TEND, every=every)
        with pytest.raises(ValueError, match="no such thing"):
            maintenance.run_if_due(maintenance_resources, kind, fail)
        record = read_row(maintenance_resources)
        assert record.last_finished_at is not None
        assert record.due_at - record.last_finished_at == pause
        assert record.last_error == "ValueError: no such thing"
        # A failed run of the task doesn't overwrite the result of the last successful run.
        assert record.last_result == {"done": None}
    update_row(empty_stack, "due_at = now()")
    count_runs(maintenance_resources)
    assert read_row(maintenance_resources).last_error is None


def test_shorter_maintenance_interval_of_a_new_release_applies_immediately(
    empty_stack: Stack, maintenance_resources: Resources
) -> None:
    update_row(empty_stack, "every_seconds = 86400, due_at = now() + interval '1 day'")
    maintenance.send_due_tasks(maintenance_resources)
    rows = empty_stack.query(
        "SELECT every_seconds, due_at < now() + interval '3 s' FROM maintenance WHERE name = %s",
        TEND.name,
    )
    assert rows == [(2, True)]


def test_maintenance_tasks_of_other_releases_are_left_unchanged(
    empty_stack: Stack, maintenance_resources: Resources
) -> None:
    empty_stack.query("INSERT INTO maintenance (name, every_seconds) VALUES ('later.tend', 1)")
    assert maintenance.send_due_tasks(maintenance_resources) == len(maintenance.list_kinds())
    assert empty_stack.query(
        "SELECT send_after <= now() FROM maintenance WHERE name = 'later.tend'"
    ) == [(True,)]
