from contextlib import suppress

import pytest
from sqlalchemy import QueuePool

from core.queues import Queue
from models import Job, JobStatus
from services.jobs.lost_jobs import DatabaseWatch, requeue_lost_jobs
from services.jobs.unclaimed_jobs import RESEND_BELOW_MESSAGES, resend_unclaimed_jobs
from storage.resources import Resources
from storage.task_messages import queue_name
from tests.support.probe.bench import Bench
from tests.support.probe.job_states import update_job
from tests.support.probe.kind import enqueue_probe

QUEUE_KEY = queue_name(Queue.BULK)


def count_messages(resources: Resources) -> int:
    return int(str(resources.redis.llen(QUEUE_KEY)))


def test_job_message_is_sent_only_after_the_commit(resources: Resources) -> None:
    with resources.unit_of_work() as uow:
        enqueue_probe(uow, {})
        assert count_messages(resources) == 0
    assert count_messages(resources) == 1


class RolledBack(Exception):
    pass


def test_rolled_back_transaction_leaves_no_job_and_no_message(
    probes_without_workers: Bench, resources: Resources
) -> None:
    with suppress(RolledBack), resources.unit_of_work() as uow:
        enqueue_probe(uow, {})
        raise RolledBack
    assert count_messages(resources) == 0
    assert probes_without_workers.stack.query("SELECT 1 FROM jobs") == []


def test_new_transaction_after_a_roll_back_sends_only_its_own_messages(
    probes_without_workers: Bench, resources: Resources
) -> None:
    with resources.unit_of_work() as uow:
        enqueue_probe(uow, {})
        uow.roll_back()
        job_id = enqueue_probe(uow, {}).id
    assert count_messages(resources) == 1
    assert probes_without_workers.stack.query("SELECT id FROM jobs") == [(job_id,)]


def test_roll_back_returns_the_connection_to_the_pool(resources: Resources) -> None:
    pool = resources.database.engine.pool
    assert isinstance(pool, QueuePool)
    with resources.unit_of_work() as uow:
        uow.session.connection()
        used_count = pool.checkedout()
        uow.roll_back()
        assert pool.checkedout() == used_count - 1


def test_failing_after_commit_action_undoes_nothing_and_stops_no_other_action(
    probes_without_workers: Bench, resources: Resources
) -> None:
    with resources.unit_of_work() as uow:
        uow.after_commit(lambda: 1 / 0)
        job_id = enqueue_probe(uow, {}).id
    assert probes_without_workers.job(job_id).status == JobStatus.QUEUED
    assert count_messages(resources) == 1


@pytest.mark.parametrize("sends", [1, 10_000])
def test_job_with_a_lost_message_is_resent_when_due(
    probes_without_workers: Bench, resources: Resources, sends: int
) -> None:
    job_id = probes_without_workers.enqueue()
    resources.redis.delete(QUEUE_KEY)
    assert resend_unclaimed_jobs(resources, Queue.BULK) == 0
    update_job(resources, job_id, sends=sends, send_after=Job.created_at)
    assert resend_unclaimed_jobs(resources, Queue.BULK) == 1
    assert count_messages(resources) == 1
    assert resend_unclaimed_jobs(resources, Queue.BULK) == 0


def test_job_resends_never_fill_a_queue_beyond_its_message_limit(
    probes_without_workers: Bench, resources: Resources
) -> None:
    with resources.unit_of_work() as uow:
        for owner in range(RESEND_BELOW_MESSAGES + 30):
            enqueue_probe(uow, {}, on_behalf_of=owner + 1)
    resources.redis.delete(QUEUE_KEY)
    _make_all_due(probes_without_workers)
    assert resend_unclaimed_jobs(resources, Queue.BULK) == RESEND_BELOW_MESSAGES
    _make_all_due(probes_without_workers)
    assert resend_unclaimed_jobs(resources, Queue.BULK) == 0
    resources.redis.ltrim(QUEUE_KEY, 20, -1)
    assert resend_unclaimed_jobs(resources, Queue.BULK) == 20
    assert count_messages(resources) == RESEND_BELOW_MESSAGES


def test_pause_between_job_resends_doubles_up_to_16_seconds(
    probes_without_workers: Bench, resources: Resources
) -> None:
    job_id = probes_without_workers.enqueue()
    pauses = []
    for _ in range(4):
        _make_all_due(probes_without_workers)
        resend_unclaimed_jobs(resources, Queue.BULK)
        statement = "SELECT extract(epoch FROM send_after - now()) FROM jobs WHERE id = %s"
        pauses.append(
            round(float(str(probes_without_workers.stack.query(statement, job_id)[0][0])))
        )
    assert pauses == [4, 8, 16, 16]


def test_concurrent_job_sweep_skips_rows_locked_by_another_without_waiting(
    probes_without_workers: Bench, resources: Resources
) -> None:
    for owner in range(4):
        probes_without_workers.enqueue(owner + 1)
    resources.redis.delete(QUEUE_KEY)
    _make_all_due(probes_without_workers)
    with resources.unit_of_work() as uow:
        locked_jobs = uow.session.query(Job).order_by(Job.id).limit(3).with_for_update().all()
        assert len(locked_jobs) == 3
        # This transaction locks the rows of three jobs, so ``resend_unclaimed_jobs`` resends only
        # the fourth job.
        assert resend_unclaimed_jobs(resources, Queue.BULK) == 1


def test_concurrent_job_sweeps_count_a_crash_only_once(
    probes_without_workers: Bench, resources: Resources
) -> None:
    job_id = probes_without_workers.enqueue()
    update_job(
        resources, job_id, status=JobStatus.RUNNING, attempt=1, lease_expires_at=Job.created_at
    )
    with resources.unit_of_work() as uow:
        uow.session.get_one(Job, job_id, with_for_update=True)
        assert requeue_lost_jobs(resources, DatabaseWatch()) == 0
    assert requeue_lost_jobs(resources, DatabaseWatch()) == 1
    assert probes_without_workers.job(job_id).crashes == 1


def test_lost_job_of_an_unknown_kind_does_not_block_the_recovery_of_other_jobs(
    probes_without_workers: Bench, resources: Resources
) -> None:
    job_ids = [probes_without_workers.enqueue() for _ in range(3)]
    for job_id in job_ids:
        update_job(
            resources, job_id, status=JobStatus.RUNNING, attempt=1, lease_expires_at=Job.created_at
        )
    # Give the first job a kind that this release doesn't know, and so many crashes that one more
    # crash would make the job fail.
    update_job(resources, job_ids[0], kind="no.longer_known", crashes=2)
    assert requeue_lost_jobs(resources, DatabaseWatch()) == 2
    assert [probes_without_workers.job(job_id).status for job_id in job_ids] == [
        "running",
        "queued",
        "queued",
    ]


def _make_all_due(probes_without_workers: Bench) -> None:
    probes_without_workers.stack.query("UPDATE jobs SET send_after = now() - interval '1 second'")
