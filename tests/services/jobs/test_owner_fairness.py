"""Tests that many jobs of one owner hardly delay the jobs of other owners."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest

from core.queues import Queue
from devstack.harness.stack import Stack
from models import JobStatus
from services.jobs.outbox import MAX_SENDS_IN_TURN, MAX_SENT_JOBS_OF_AN_OWNER
from services.jobs.retries import retry_job_after
from services.jobs.transitions import hand_back_job
from services.jobs.unclaimed_jobs import resend_unclaimed_jobs
from storage.resources import Resources
from storage.task_messages import queue_name
from tests.support.probe.bench import Bench, make_bench
from tests.support.probe.job_states import claim_lease, update_job
from tests.support.probe.kind import PROBE

ANNA_ID = 1
BERT_ID = 2


def list_sent_jobs(resources: Resources) -> list[int]:
    """Return the ids of the jobs in the queue of probe jobs, the next job to be delivered first."""
    messages = resources.redis.lrange(queue_name(PROBE.queue), 0, -1)
    assert isinstance(messages, list)
    task_ids = [json.loads(message)["headers"]["id"] for message in reversed(messages)]
    return [int(task_id.split("-")[1]) for task_id in task_ids]


@pytest.fixture
def jobs_of_one_owner(probes_without_workers: Bench, resources: Resources) -> list[int]:
    """The ids of ten queued jobs, all of the same owner."""
    return [probes_without_workers.enqueue(ANNA_ID) for _ in range(10)]


def test_queue_holds_a_limited_number_of_messages_per_owner(
    jobs_of_one_owner: list[int], resources: Resources
) -> None:
    assert list_sent_jobs(resources) == jobs_of_one_owner[:MAX_SENT_JOBS_OF_AN_OWNER]


def test_claim_enqueues_the_next_job_of_its_owner_behind_jobs_of_other_owners(
    probes_without_workers: Bench, jobs_of_one_owner: list[int], resources: Resources
) -> None:
    bert_job_id = probes_without_workers.enqueue(BERT_ID)
    claim_lease(resources, jobs_of_one_owner[0])
    assert list_sent_jobs(resources) == [
        *jobs_of_one_owner[:MAX_SENT_JOBS_OF_AN_OWNER],
        bert_job_id,
        jobs_of_one_owner[2],
    ]
    claim_lease(resources, jobs_of_one_owner[1])
    assert list_sent_jobs(resources)[-1] == jobs_of_one_owner[3]


def test_all_jobs_of_one_owner_are_enqueued_in_order_up_to_the_last(
    probes_without_workers: Bench, jobs_of_one_owner: list[int], resources: Resources
) -> None:
    for number, job_id in enumerate(jobs_of_one_owner):
        assert list_sent_jobs(resources)[number] == job_id
        claim_lease(resources, job_id)
    assert list_sent_jobs(resources) == jobs_of_one_owner


def test_job_handed_back_is_queued_behind_other_jobs_of_its_owner(
    jobs_of_one_owner: list[int], resources: Resources
) -> None:
    turns: list[int] = []
    for _ in range(len(jobs_of_one_owner) + 1):
        turns.append(list_sent_jobs(resources)[len(turns)])
        lease = claim_lease(resources, turns[-1])
        with resources.unit_of_work() as uow:
            hand_back_job(uow, lease)
    assert turns == [*jobs_of_one_owner, jobs_of_one_owner[0]]


def test_job_sweep_enqueues_further_jobs_of_an_owner_whose_sent_jobs_were_cancelled(
    probes_without_workers: Bench, jobs_of_one_owner: list[int], resources: Resources
) -> None:
    statement = "UPDATE jobs SET status = 'cancelled', finished_at = now() WHERE sends > 0"
    probes_without_workers.stack.query(statement)
    bert_job_ids = [probes_without_workers.enqueue(BERT_ID) for _ in range(3)]
    assert resend_unclaimed_jobs(resources, Queue.BULK) == MAX_SENT_JOBS_OF_AN_OWNER
    assert list_sent_jobs(resources)[-MAX_SENT_JOBS_OF_AN_OWNER:] == jobs_of_one_owner[2:4]
    assert bert_job_ids[-1] not in list_sent_jobs(resources)


def test_jobs_unclaimed_after_many_sends_no_longer_block_other_jobs_of_their_owner(
    probes_without_workers: Bench, jobs_of_one_owner: list[int], resources: Resources
) -> None:
    for job_id in jobs_of_one_owner[:MAX_SENT_JOBS_OF_AN_OWNER]:
        update_job(resources, job_id, sends=MAX_SENDS_IN_TURN + 1)
    assert resend_unclaimed_jobs(resources, Queue.BULK) == MAX_SENT_JOBS_OF_AN_OWNER
    assert list_sent_jobs(resources)[-MAX_SENT_JOBS_OF_AN_OWNER:] == jobs_of_one_owner[2:4]


def test_job_waiting_for_its_retry_blocks_no_other_job_of_its_owner(
    resources: Resources, jobs_of_one_owner: list[int]
) -> None:
    for job_id in jobs_of_one_owner[:4]:
        lease = claim_lease(resources, job_id)
        with resources.unit_of_work() as uow:
            retry_job_after(uow, lease, timedelta(hours=1), "Not now.")
    assert list_sent_jobs(resources) == jobs_of_one_owner[:6]


@pytest.fixture(scope="module")
def probes_with_one_process(make_stack: Callable[[str], Stack]) -> Bench:
    """Probe jobs on a stack whose one worker runs jobs in a single process."""
    bench = make_bench(make_stack("turns"))
    bench.start_worker(concurrency=1)
    return bench


@pytest.mark.tier("timing")
def test_job_of_another_owner_finishes_before_most_of_a_large_backlog(
    probes_with_one_process: Bench,
) -> None:
    backlog_job_ids = [probes_with_one_process.enqueue(ANNA_ID, sleep=0.02) for _ in range(300)]
    probes_with_one_process.finished(backlog_job_ids[0])
    bert_job = probes_with_one_process.finished(probes_with_one_process.enqueue(BERT_ID))
    assert bert_job.status == JobStatus.SUCCEEDED
    query = "SELECT count(*) FROM jobs WHERE on_behalf_of = %s AND finished_at BETWEEN %s AND %s"
    finished_jobs = probes_with_one_process.stack.query(
        query, ANNA_ID, bert_job.created_at, bert_job.finished_at
    )
    # Until Bert's job ends, few of Anna's jobs end: 2 that were in progress, the jobs that were
    # already in the queue, and at most 10 that end while Bert's job is being enqueued.
    assert int(str(finished_jobs[0][0])) <= 2 + MAX_SENT_JOBS_OF_AN_OWNER + 10
    probes_with_one_process.all_finished(within=60)
