import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from redis.client import PubSub
from sqlalchemy import func, text

from core.errors import DomainError, Kind
from devstack.harness.polling import eventually
from models import Job, JobStatus
from services.jobs.lease import JobCancelled, Lease, LeaseLost, renew_lease
from services.jobs.lost_jobs import (
    LAST_CRASH_PATIENCE,
    OUTAGE_GRACE_PERIOD,
    DatabaseWatch,
    requeue_lost_jobs,
)
from services.jobs.records import describe_error
from services.jobs.retries import retry_job_after
from services.jobs.transitions import (
    cancel_job,
    claim_job,
    complete_job,
    fail_job,
    forgive_crash,
    hand_back_job,
    record_progress,
)
from storage.redis.notifications import CHANNEL, build_job_topic, build_notification
from storage.resources import Resources, open_resources
from storage.unit_of_work import UnitOfWork
from tests.support.probe.bench import Bench
from tests.support.probe.job_states import claim_lease, update_job
from tests.support.probe.kind import enqueue_committed_probe

CANCELLED_ERROR = {"code": "job.cancelled", "message": "The job was cancelled."}


def test_only_one_concurrent_claim_wins(
    probes_without_workers: Bench, resources: Resources
) -> None:
    job_id = probes_without_workers.enqueue()
    barrier = threading.Barrier(6)

    def claim(_: int) -> Lease | None:
        barrier.wait()
        with resources.unit_of_work() as uow:
            return claim_job(uow, job_id)

    with ThreadPoolExecutor(6) as threads:
        leases = list(threads.map(claim, range(6)))
    assert [lease.attempt for lease in leases if lease] == [1]


@pytest.mark.parametrize("is_finished", [False, True])
def test_running_or_finished_job_is_not_claimed_when_its_message_is_redelivered(
    lease: Lease, resources: Resources, is_finished: bool
) -> None:
    if is_finished:
        with resources.unit_of_work() as uow:
            complete_job(uow, lease, {})
    with resources.unit_of_work() as uow:
        assert claim_job(uow, lease.job_id) is None


def test_job_in_backoff_is_not_claimed_before_its_retry_time(
    probes_without_workers: Bench, lease: Lease, resources: Resources
) -> None:
    with resources.unit_of_work() as uow:
        retry_job_after(uow, lease, timedelta(minutes=1), "It rains.")
    with resources.unit_of_work() as uow:
        assert claim_job(uow, lease.job_id) is None
    job = probes_without_workers.job(lease.job_id)
    assert (job.status, job.retries, job.crashes) == (JobStatus.QUEUED, 1, 0)
    assert (job.failing_since is not None, job.last_reason) == (True, "It rains.")
    update_job(resources, lease.job_id, run_at=func.now())
    assert claim_lease(resources, lease.job_id).retries == 1


# While a transaction that records progress locks the job's row, the heartbeat can't renew the
# lease. The function that records progress must therefore extend the lease itself.
@pytest.mark.parametrize("extend_lease", [renew_lease, partial(record_progress, done=1)])
def test_job_lease_is_extended_by_renewal_and_by_progress(
    probes_without_workers: Bench,
    lease: Lease,
    resources: Resources,
    extend_lease: Callable[[UnitOfWork, Lease], object],
) -> None:
    update_job(resources, lease.job_id, lease_expires_at=func.now())
    with resources.unit_of_work() as uow:
        extend_lease(uow, lease)
    assert requeue_lost_jobs(resources, DatabaseWatch()) == 0
    assert probes_without_workers.job(lease.job_id).status == JobStatus.RUNNING


def test_worker_that_lost_its_lease_writes_nothing_and_its_transaction_is_rolled_back(
    probes_without_workers: Bench, lease: Lease, resources: Resources
) -> None:
    update_job(resources, lease.job_id, lease_expires_at=func.now())
    assert requeue_lost_jobs(resources, DatabaseWatch()) == 1
    successor = claim_lease(resources, lease.job_id)
    for write in _WORKER_WRITES:
        with pytest.raises(LeaseLost):
            _record_effect_and_write(write, resources, lease)
    assert probes_without_workers.effects(lease.job_id) == 0
    with resources.unit_of_work() as uow:
        complete_job(uow, successor, {"by": "the successor"})
    job = probes_without_workers.job(lease.job_id)
    assert (job.status, job.result) == (JobStatus.SUCCEEDED, {"by": "the successor"})


_WORKER_WRITES: tuple[Callable[[UnitOfWork, Lease], object], ...] = (
    lambda uow, lease: complete_job(uow, lease, {"by": "the loser"}),
    lambda uow, lease: fail_job(uow, lease, DomainError(Kind.INVALID, "x.y", "z")),
    lambda uow, lease: record_progress(uow, lease, done=9),
    lambda uow, lease: retry_job_after(uow, lease, timedelta(0), "It rains."),
    hand_back_job,
    cancel_job,
    renew_lease,
)


def _record_effect_and_write(
    write: Callable[[UnitOfWork, Lease], object], resources: Resources, lease: Lease
) -> None:
    with resources.unit_of_work() as uow:
        uow.session.execute(
            text("INSERT INTO probe_effects (job_id, attempt, pid) VALUES (:id, 1, 0)"),
            {"id": lease.job_id},
        )
        write(uow, lease)


def test_job_fails_with_worker_lost_error_after_three_crashes(
    probes_without_workers: Bench, resources: Resources
) -> None:
    job_id = probes_without_workers.enqueue()
    for crashes in (1, 2, 3):
        claim_lease(resources, job_id)
        if crashes == 3:
            # Before the job fails, live workers get time to show that they are alive.
            update_job(resources, job_id, lease_expires_at=func.now())
            assert requeue_lost_jobs(resources, DatabaseWatch()) == 0
        expired_at = func.now() - (LAST_CRASH_PATIENCE if crashes == 3 else timedelta(0))
        update_job(resources, job_id, lease_expires_at=expired_at)
        assert requeue_lost_jobs(resources, DatabaseWatch()) == 1
        assert probes_without_workers.job(job_id).crashes == crashes
    job = probes_without_workers.job(job_id)
    assert job.status == JobStatus.FAILED
    assert job.error is not None
    assert job.error["code"] == "job.worker_lost"
    assert probes_without_workers.stack.query(
        "SELECT abandoned FROM probe_plans WHERE id = %s", job.subject_id
    ) == [(1,)]


def test_job_progress_resets_its_crash_and_retry_counts(
    probes_without_workers: Bench, resources: Resources
) -> None:
    job_id = probes_without_workers.enqueue()
    failure = {"failing_since": func.now(), "last_reason": "It rains."}
    update_job(resources, job_id, crashes=2, retries=4, **failure)
    lease = claim_lease(resources, job_id)
    assert lease.retries == 4
    with resources.unit_of_work() as uow:
        record_progress(uow, lease, done=1, total=2)
    assert lease.retries == 0
    job = probes_without_workers.job(job_id)
    assert (job.crashes, job.retries, job.progress_done, job.progress_total) == (0, 0, 1, 2)
    assert (job.failing_since, job.last_reason) == (None, None)


def test_job_handed_back_by_its_worker_counts_neither_as_crash_nor_as_retry(
    probes_without_workers: Bench, lease: Lease, resources: Resources
) -> None:
    with resources.unit_of_work() as uow:
        hand_back_job(uow, lease)
    job = probes_without_workers.job(lease.job_id)
    assert (job.status, job.crashes, job.retries) == (JobStatus.QUEUED, 0, 0)
    assert claim_lease(resources, lease.job_id).attempt == 2


def test_cancellation_reaches_the_running_worker_with_its_next_lease_renewal(
    lease: Lease, resources: Resources
) -> None:
    update_job(resources, lease.job_id, cancel_requested=True)
    lease.check_cancelled()
    with resources.unit_of_work() as uow:
        renew_lease(uow, lease)
    with pytest.raises(JobCancelled):
        lease.check_cancelled()


def test_requested_cancellation_survives_an_attempt_that_hands_the_job_back(
    lease: Lease, resources: Resources
) -> None:
    update_job(resources, lease.job_id, cancel_requested=True)
    with resources.unit_of_work() as uow:
        hand_back_job(uow, lease)
    with pytest.raises(JobCancelled):
        claim_lease(resources, lease.job_id).check_cancelled()


def test_job_with_requested_cancellation_is_cancelled_when_its_worker_is_lost(
    probes_without_workers: Bench, lease: Lease, resources: Resources
) -> None:
    update_job(resources, lease.job_id, cancel_requested=True, lease_expires_at=func.now())
    assert requeue_lost_jobs(resources, DatabaseWatch()) == 1
    job = probes_without_workers.job(lease.job_id)
    assert (job.status, describe_error(job)) == (JobStatus.CANCELLED, CANCELLED_ERROR)


def _next_notification(job_id: int, subscription: PubSub) -> dict[str, Any] | None:
    """Return the next notification about the job, or None if there is none yet.

    Notifications about other jobs are skipped, because other stacks publish to the same channel.
    """
    while message := subscription.get_message(timeout=0.1):
        notification: dict[str, Any] = message
        if notification["data"].decode().partition(" ")[0] == build_job_topic(job_id):
            return notification
    return None


def test_job_change_is_published_only_after_its_commit(
    probes_without_workers: Bench, lease: Lease, resources: Resources
) -> None:
    subscription = PubSub(resources.redis.connection_pool, ignore_subscribe_messages=True)
    subscription.subscribe(CHANNEL)
    assert subscription.get_message(timeout=5) is None  # the confirmation
    with resources.unit_of_work() as uow:
        version_before = uow.session.get_one(Job, lease.job_id).version
        record_progress(uow, lease, done=1)
        assert _next_notification(lease.job_id, subscription) is None
    notification = eventually(lambda: _next_notification(lease.job_id, subscription))
    subscription.close()
    assert notification["data"].decode() == build_notification(
        build_job_topic(lease.job_id), "running"
    )
    assert probes_without_workers.job(lease.job_id).version == version_before + 1


def test_only_the_waiting_process_is_notified_of_a_job_change(
    probes_without_workers: Bench, resources: Resources
) -> None:
    waiting_resources = open_resources(
        probes_without_workers.stack.settings(), concurrency=1, name="asking", waiter="here"
    )
    job_id = enqueue_committed_probe(waiting_resources)
    waiting_resources.close()
    subscription = PubSub(resources.redis.connection_pool, ignore_subscribe_messages=True)
    subscription.psubscribe(f"{CHANNEL}*")
    assert subscription.get_message(timeout=5) is None  # the confirmation
    claim_lease(resources, job_id)
    notification = eventually(lambda: _next_notification(job_id, subscription))
    subscription.close()
    assert notification["channel"].decode() == f"{CHANNEL}:here"


def test_no_job_lease_counts_as_lost_in_the_grace_period_after_a_database_outage(
    probes_without_workers: Bench,
    lease: Lease,
    resources: Resources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    watch = DatabaseWatch()
    with pytest.raises(ConnectionError), watch.observe():
        raise ConnectionError
    update_job(resources, lease.job_id, lease_expires_at=func.now())
    now += OUTAGE_GRACE_PERIOD.total_seconds() - 0.1
    assert requeue_lost_jobs(resources, watch) == 0
    now += 0.2
    assert requeue_lost_jobs(resources, watch) == 1
    assert probes_without_workers.job(lease.job_id).crashes == 1


def test_lost_jobs_are_requeued_although_every_statement_of_the_database_is_slow(
    lease: Lease, resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    watch = DatabaseWatch()
    for rounds, seconds, count in ((1, 3, 0), (1, 6, 0), (20, 15, 1)):
        for _ in range(rounds):
            with watch.observe():
                now += 2
        expired_at = func.now() - timedelta(seconds=seconds)
        update_job(resources, lease.job_id, lease_expires_at=expired_at)
        now += 2
        assert requeue_lost_jobs(resources, watch) == count


def test_lost_lease_of_a_live_worker_does_not_count_as_a_crash(
    probes_without_workers: Bench, resources: Resources
) -> None:
    job_id = probes_without_workers.enqueue()
    late_leases = []
    for crashes in (1, 2):
        late_leases.append(claim_lease(resources, job_id))
        update_job(resources, job_id, lease_expires_at=func.now())
        assert requeue_lost_jobs(resources, DatabaseWatch()) == 1
        assert probes_without_workers.job(job_id).crashes == crashes
    for lease, crashes in zip((late_leases * 2)[1:], (1, 0, 0), strict=True):
        with resources.unit_of_work() as uow:
            forgive_crash(uow, lease)
        assert probes_without_workers.job(job_id).crashes == crashes
    running_lease = claim_lease(resources, job_id)
    with resources.unit_of_work() as uow:
        record_progress(uow, running_lease, done=1)
    assert probes_without_workers.job(job_id).status == JobStatus.RUNNING


def test_job_that_was_too_slow_twice_is_claimed_only_while_its_queue_has_no_other_job(
    probes_without_workers: Bench, resources: Resources
) -> None:
    slow_id = probes_without_workers.enqueue()
    for _ in range(2):
        lease = claim_lease(resources, slow_id)
        with resources.unit_of_work() as uow:
            retry_job_after(uow, lease, timedelta(0), "The server is busy.", was_slow=True)
    other_id = probes_without_workers.enqueue()
    with resources.unit_of_work() as uow:
        assert claim_job(uow, slow_id) is None
    job = probes_without_workers.job(slow_id)
    assert (job.status, job.slow_attempts, job.crashes) == (JobStatus.QUEUED, 2, 0)
    claim_lease(resources, other_id)
    lease = claim_lease(resources, slow_id)
    with resources.unit_of_work() as uow:
        record_progress(uow, lease, done=1)
    assert probes_without_workers.job(slow_id).slow_attempts == 0


def test_two_jobs_that_were_too_slow_do_not_wait_for_each_other(
    probes_without_workers: Bench, resources: Resources
) -> None:
    job_ids = [probes_without_workers.enqueue() for _ in range(2)]
    for job_id in job_ids:
        update_job(resources, job_id, slow_attempts=2)
    claim_lease(resources, job_ids[0])
