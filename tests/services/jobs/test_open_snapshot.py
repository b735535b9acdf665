"""Tests that jobs stay fast although a database snapshot stays open for hours.

While a snapshot is open, Postgres keeps the index entries of all jobs that end.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

import pytest

from devstack.harness.ended_jobs import add_ended_jobs, open_snapshot
from devstack.harness.polling import eventually
from services.jobs.lease import renew_lease
from services.jobs.lost_jobs import DatabaseWatch, requeue_lost_jobs
from services.jobs.retries import retry_job_after
from services.jobs.scan_paces import ScanPace, SweepPaces
from services.jobs.sweep import sweep_jobs
from services.jobs.transitions import complete_job
from services.jobs.unclaimed_jobs import RESEND_BELOW_MESSAGES
from storage.resources import Resources, open_resources
from tests.support.probe.bench import Bench
from tests.support.probe.job_states import claim_lease
from tests.support.probe.kind import PROBE, enqueue_committed_probe

ENDED_JOB_COUNT = 20_000
OWNER_ID = 7
# The maximum number of database blocks that one search for jobs to resend, or the lifecycle of one
# job, may read. The index entries of all ended jobs fill 500 blocks, so reading all of these
# entries exceeds the maximum.
MAX_BLOCKS = 150
_BLOCKS_QUERY = (
    "SELECT sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)"
    " FROM pg_statio_user_tables WHERE relname LIKE 'jobs%%'"
)


@pytest.fixture
def ended_jobs(probes_without_workers: Bench, resources: Resources) -> Iterator[None]:
    """Jobs of one owner that began and ended under a snapshot that is still open."""
    with open_snapshot(probes_without_workers.stack):
        add_ended_jobs(probes_without_workers.stack, OWNER_ID, ENDED_JOB_COUNT, kind=PROBE.name)
        yield


def _measure_blocks(probes_without_workers: Bench, action: Callable[[Resources], object]) -> int:
    """Run ``action`` three times, and return the smallest number of blocks that a run has read.

    Only database blocks of the tables that store jobs, and of their indexes, are counted.
    """
    return min(_measure_blocks_once(probes_without_workers, action) for _ in range(3))


def _measure_blocks_once(
    probes_without_workers: Bench, action: Callable[[Resources], object]
) -> int:
    own_resources = open_resources(
        probes_without_workers.stack.settings(), concurrency=1, name="counted"
    )
    before = probes_without_workers.stack.query(_BLOCKS_QUERY)[0][0]
    action(own_resources)
    own_resources.close()
    # Wait until the connections are closed, because a connection may report its block counts only
    # then.
    query = "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'pressroom-counted'"
    eventually(lambda: probes_without_workers.stack.query(query)[0][0], what="the connections' end")
    return int(str(probes_without_workers.stack.query(_BLOCKS_QUERY)[0][0])) - int(str(before))


@pytest.mark.usefixtures("ended_jobs")
def test_job_sweep_of_an_empty_queue_reads_few_blocks_despite_an_open_snapshot(
    probes_without_workers: Bench,
) -> None:
    paces = SweepPaces()
    full_scan_blocks = _measure_blocks_once(
        probes_without_workers, partial(sweep_jobs, paces=paces)
    )
    assert full_scan_blocks > ENDED_JOB_COUNT / 100, "the snapshot keeps nothing"
    assert not paces.lost.is_due
    assert len(paces.due_queues()) < len(paces.queues)
    for pace in (paces.lost, *paces.queues.values()):
        pace.record_scan(60, has_results=False)
    assert _measure_blocks(probes_without_workers, partial(sweep_jobs, paces=paces)) <= MAX_BLOCKS


@pytest.mark.usefixtures("ended_jobs")
def test_job_lifecycle_reads_few_blocks_despite_an_open_snapshot(
    probes_without_workers: Bench,
) -> None:
    def action(own_resources: Resources) -> None:
        lease = claim_lease(own_resources, enqueue_committed_probe(own_resources, OWNER_ID))
        with own_resources.unit_of_work() as uow:
            renew_lease(uow, lease)
        with own_resources.unit_of_work() as uow:
            complete_job(uow, lease, {})

    assert _measure_blocks(probes_without_workers, action) <= MAX_BLOCKS


def test_long_overdue_job_is_resent_only_by_a_full_scan(
    probes_without_workers: Bench, resources: Resources
) -> None:
    probes_without_workers.enqueue()
    probes_without_workers.stack.query("UPDATE jobs SET send_after = now() - interval '1 hour'")
    quick_pace = SweepPaces()
    quick_pace.queues[PROBE.queue].record_scan(60, has_results=False)
    assert sweep_jobs(resources, paces=quick_pace) == 0
    assert sweep_jobs(resources, paces=SweepPaces()) == 1


def test_long_expired_lease_is_detected_only_by_a_full_scan(
    probes_without_workers: Bench, resources: Resources
) -> None:
    claim_lease(resources, probes_without_workers.enqueue())
    probes_without_workers.stack.query(
        "UPDATE jobs SET lease_expires_at = now() - interval '1 hour'"
    )
    quick_pace = ScanPace()
    quick_pace.record_scan(60, has_results=False)
    assert requeue_lost_jobs(resources, DatabaseWatch(), quick_pace) == 0
    assert requeue_lost_jobs(resources, DatabaseWatch()) == 1


def test_unclaimed_jobs_in_a_full_queue_still_count_toward_their_owners_limit(
    probes_without_workers: Bench, resources: Resources
) -> None:
    """An owner with many unclaimed jobs must not delay the jobs of other owners.

    If unclaimed jobs didn't count toward their owner's limit, Pressroom would send two more jobs of
    this owner to the queue every half minute, ahead of the jobs of other owners.
    """
    for owner in range(RESEND_BELOW_MESSAGES):
        probes_without_workers.enqueue(1000 + owner)
    # Enqueue the owner's jobs last. On a slow machine, enqueuing the jobs of the other owners may
    # take half a minute. If the owner's jobs came first, Pressroom would send these jobs
    # to the queue again.
    for _ in range(2):
        probes_without_workers.enqueue(OWNER_ID)
    shift_time = "UPDATE jobs SET send_after = send_after - interval '22 s' WHERE on_behalf_of = %s"
    for _ in range(2):
        probes_without_workers.stack.query(shift_time, OWNER_ID)
        assert sweep_jobs(resources) == 0
    sends_query = "SELECT sends FROM jobs WHERE id = %s"
    assert probes_without_workers.stack.query(
        sends_query, probes_without_workers.enqueue(OWNER_ID)
    ) == [(0,)]


def test_retried_job_is_resent_without_a_full_scan(
    probes_without_workers: Bench, resources: Resources
) -> None:
    lease = claim_lease(resources, probes_without_workers.enqueue())
    with resources.unit_of_work() as uow:
        retry_job_after(uow, lease, timedelta(0), "Not now.")
    quick_pace = SweepPaces()
    quick_pace.queues[PROBE.queue].record_scan(60, has_results=False)
    assert sweep_jobs(resources, paces=quick_pace) == 1
