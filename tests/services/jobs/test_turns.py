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
from tests.support.probe.bench import Bench, make_bench
from tests.support.probe.job_states import claim_lease, list_sent_jobs, update_job

ANNA, BERT = 1, 2


@pytest.fixture
def rush(quiet: Bench, resources: Resources) -> list[int]:
    """Many jobs of one owner."""
    return [quiet.enqueue(ANNA) for _ in range(10)]


def test_queue_holds_few_messages_of_one_owner(rush: list[int], resources: Resources) -> None:
    assert list_sent_jobs(resources) == rush[:MAX_SENT_JOBS_OF_AN_OWNER]


def test_claim_sends_the_owners_next_job_behind_the_other_owners(
    quiet: Bench, rush: list[int], resources: Resources
) -> None:
    bert = quiet.enqueue(BERT)
    claim_lease(resources, rush[0])
    assert list_sent_jobs(resources) == [*rush[:MAX_SENT_JOBS_OF_AN_OWNER], bert, rush[2]]
    claim_lease(resources, rush[1])
    assert list_sent_jobs(resources)[-1] == rush[3]


def test_owners_last_job_is_claimed_like_any_other(
    quiet: Bench, rush: list[int], resources: Resources
) -> None:
    for number, job_id in enumerate(rush):
        assert list_sent_jobs(resources)[number] == job_id
        claim_lease(resources, job_id)
    assert list_sent_jobs(resources) == rush


def test_turn_given_up_stands_behind_the_owners_other_jobs(
    rush: list[int], resources: Resources
) -> None:
    turns: list[int] = []
    for _ in range(len(rush) + 1):
        turns.append(list_sent_jobs(resources)[len(turns)])
        lease = claim_lease(resources, turns[-1])
        with resources.unit_of_work() as uow:
            hand_back_job(uow, lease)
    assert turns == [*rush, rush[0]]


def test_sweep_goes_on_with_an_owner_whose_sent_jobs_were_cancelled(
    quiet: Bench, rush: list[int], resources: Resources
) -> None:
    statement = "UPDATE jobs SET status = 'cancelled', finished_at = now() WHERE sends > 0"
    quiet.stack.query(statement)
    bert = [quiet.enqueue(BERT) for _ in range(3)]
    assert resend_unclaimed_jobs(resources, Queue.BULK) == MAX_SENT_JOBS_OF_AN_OWNER
    assert list_sent_jobs(resources)[-MAX_SENT_JOBS_OF_AN_OWNER:] == rush[2:4]
    assert bert[-1] not in list_sent_jobs(resources)


def test_jobs_that_no_worker_claims_hold_up_their_owners_others_for_no_longer_than_a_while(
    quiet: Bench, rush: list[int], resources: Resources
) -> None:
    for job_id in rush[:MAX_SENT_JOBS_OF_AN_OWNER]:
        update_job(resources, job_id, sends=MAX_SENDS_IN_TURN + 1)
    assert resend_unclaimed_jobs(resources, Queue.BULK) == MAX_SENT_JOBS_OF_AN_OWNER
    assert list_sent_jobs(resources)[-MAX_SENT_JOBS_OF_AN_OWNER:] == rush[2:4]


def test_job_tried_again_later_holds_up_none_of_its_owners(
    resources: Resources, rush: list[int]
) -> None:
    for job_id in rush[:4]:
        lease = claim_lease(resources, job_id)
        with resources.unit_of_work() as uow:
            retry_job_after(uow, lease, timedelta(hours=1), "Not now.")
    assert list_sent_jobs(resources) == rush[:6]


@pytest.fixture(scope="module")
def single(make_stack: Callable[[str], Stack]) -> Bench:
    """A bench with one worker process."""
    working = make_bench(make_stack("turns"))
    working.start_worker(concurrency=1)
    return working


@pytest.mark.tier("timing")
def test_single_job_of_another_owner_is_done_before_most_of_a_rush(single: Bench) -> None:
    rush = [single.enqueue(ANNA, sleep=0.02) for _ in range(300)]
    single.finished(rush[0])
    bert = single.finished(single.enqueue(BERT))
    assert bert.status == JobStatus.SUCCEEDED
    done = "SELECT count(*) FROM jobs WHERE on_behalf_of = %s AND finished_at BETWEEN %s AND %s"
    before = single.stack.query(done, ANNA, bert.created_at, bert.finished_at)
    # The job under way, those that were sent, and what ended while the job was being sent.
    assert int(str(before[0][0])) <= 2 + MAX_SENT_JOBS_OF_AN_OWNER + 10
    single.all_finished(within=60)
