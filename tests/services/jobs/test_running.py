from datetime import timedelta

import psutil
import pytest
from sqlalchemy import func

from core.scopes import Scope
from devstack.harness.polling import eventually
from models import Job, JobStatus
from services.access.caller import Caller
from services.jobs import records
from storage.broker import Broker
from tests.support.probe.bench import Bench
from tests.support.probe.job_states import update_job
from tests.support.probe.kind import BRIEF_BULK_PROBE, PROBE, enqueue_probe


@pytest.fixture(scope="module", autouse=True)
def long_job_id(probes: Bench) -> int:
    """The id of a job that sleeps for 6.5 seconds while the other tests of this module run."""
    return probes.enqueue(sleep=6.5)


def test_job_is_retried_with_backoff_after_transient_failure(probes: Bench) -> None:
    job_id = probes.enqueue(flaky=2)
    job = probes.finished(job_id)
    assert (job.status, job.attempt, job.last_reason) == (JobStatus.SUCCEEDED, 3, None)
    pauses = probes.stack.query(
        "SELECT extract(epoch FROM at - lag(at) OVER (ORDER BY attempt)) FROM probe_starts"
        " WHERE job_id = %s ORDER BY attempt OFFSET 1",
        job_id,
    )
    first, second = (float(str(row[0])) for row in pauses)
    assert first >= 0.5
    assert second >= 1.0


def test_job_over_its_time_limit_is_retried_with_growing_pauses_and_counts_no_crash(
    probes: Bench,
) -> None:
    job_id = probes.enqueue(kind=BRIEF_BULK_PROBE, stuck=1, hang=2)

    def find_waiting_job() -> Job | None:
        job = probes.job(job_id)
        return job if job.retries == 1 else None

    # The first attempt doesn't react to its time limit, so its process is killed.
    job = eventually(find_waiting_job, what="the wait for the second attempt")
    assert isinstance(job, Job)
    assert (job.status, job.last_reason) == (JobStatus.QUEUED, "The server is busy.")
    job = probes.finished(job_id)
    assert (job.status, job.attempt, job.crashes) == (JobStatus.SUCCEEDED, 3, 0)
    starts = probes.stack.query(
        "SELECT extract(epoch FROM at - lag(at) OVER (ORDER BY attempt)), pid FROM probe_starts"
        " WHERE job_id = %s ORDER BY attempt",
        job_id,
    )
    (_, first_pid), (first, _), (second, _) = starts
    assert not psutil.pid_exists(int(str(first_pid)))
    # An attempt takes its time limit of a second, and then the job pauses.
    assert float(str(first)) >= 1.5
    assert float(str(second)) >= 2.0


def test_job_that_makes_progress_may_take_longer_than_its_time_limit(probes: Bench) -> None:
    job_id = probes.enqueue(kind=BRIEF_BULK_PROBE, steps=4, step_sleep=0.6)
    job = probes.finished(job_id)
    assert (job.status, job.attempt, job.progress_done) == (JobStatus.SUCCEEDED, 1, 4)


def test_waiting_job_reports_its_last_failure_and_next_retry_time(probes: Bench) -> None:
    owner = probes.stack.create_owner()
    with probes.stack.resources.unit_of_work() as uow:
        job_id = enqueue_probe(uow, {"flaky": 1000}, account_id=owner.account_id).id
    caller = Caller(owner.account_id, owner.person_id, frozenset(Scope), unrestricted=True)

    def find_waiting_job() -> Job | None:
        with probes.stack.resources.unit_of_work() as uow:
            job = records.get_job(uow, caller, job_id)
            return job if job.retries and records.get_retry_time(job) else None

    job = eventually(find_waiting_job, what="the wait for the next try")
    assert isinstance(job, Job)
    assert job.last_reason == "Not now."
    assert records.get_retry_time(job) == job.run_at
    update_job(probes.stack.resources, job_id, cancel_requested=True)


def test_job_is_given_up_after_failing_for_24_hours(probes: Bench) -> None:
    job_id = probes.enqueue(flaky=100)
    day = timedelta(hours=24)
    due_now = {"run_at": func.now(), "send_after": func.now()}
    update_job(probes.stack.resources, job_id, retries=500, failing_since=func.now() - day * 0.99)
    eventually(lambda: probes.job(job_id).retries == 501, what="one more try")
    update_job(probes.stack.resources, job_id, failing_since=func.now() - day, **due_now)
    job = probes.finished(job_id)
    assert job.status == JobStatus.FAILED
    assert job.error is not None
    assert job.error["code"] == "job.given_up"
    assert job.error["message"] == "Not now. The job was retried for 24 hours."


@pytest.mark.parametrize(
    ("failing_seconds", "max_pause_seconds"),
    [(0, 30), (9 * 60, 30), (20 * 60, 60), (3600, 180), (7200, 300)],
)
def test_retry_pauses_grow_with_the_time_that_a_job_has_been_failing(
    probes: Bench, failing_seconds: int, max_pause_seconds: int
) -> None:
    job_id = probes.enqueue(flaky=100)
    # Wait until the first attempt has failed, because a running attempt would later overwrite what
    # this test writes into the job's row.
    eventually(lambda: probes.job(job_id).retries, what="the first try")
    since = func.now() - timedelta(seconds=failing_seconds)
    due_now = {"run_at": func.now(), "send_after": func.now()}
    update_job(probes.stack.resources, job_id, retries=100, failing_since=since, **due_now)
    eventually(lambda: probes.job(job_id).retries == 101, what="a try")
    statement = "SELECT extract(epoch FROM run_at - now()) FROM jobs WHERE id = %s"
    [(seconds,)] = probes.stack.query(statement, job_id)
    assert max_pause_seconds / 2 - 5 < float(str(seconds)) <= max_pause_seconds + 1


def test_job_with_a_permanent_error_is_not_retried_and_reports_the_error(probes: Bench) -> None:
    job = probes.finished(probes.enqueue(refuse="No such thing."))
    assert (job.status, job.attempt) == (JobStatus.FAILED, 1)
    assert job.error == {"kind": "invalid", "code": "probe.refused", "message": "No such thing."}


def test_running_job_is_cancelled_before_it_has_any_effect(probes: Bench) -> None:
    job_id = probes.enqueue(sleep=60)
    probes.started(job_id)
    update_job(probes.stack.resources, job_id, cancel_requested=True)
    job = probes.finished(job_id)
    assert job.status == JobStatus.CANCELLED
    assert probes.effects(job_id) == 0


def test_job_split_into_several_turns_runs_each_step_exactly_once(probes: Bench) -> None:
    job_id = probes.enqueue(steps=5, turn=2)
    job = probes.finished(job_id)
    assert (job.status, job.attempt, job.progress_done) == (JobStatus.SUCCEEDED, 3, 5)
    steps = probes.stack.query("SELECT step FROM probe_effects WHERE job_id = %s", job_id)
    assert sorted(steps) == [(0,), (1,), (2,), (3,), (4,)]


def test_message_for_an_unknown_job_or_task_does_not_disturb_other_jobs(probes: Bench) -> None:
    broker = Broker(probes.stack.settings())
    broker.send(PROBE.name, PROBE.queue, {"job_id": 2**62})
    broker.send("no.such_task", PROBE.queue, {"job_id": 1})
    broker.close()
    assert probes.finished(probes.enqueue()).status == JobStatus.SUCCEEDED


def test_long_running_job_keeps_its_lease_by_renewal(probes: Bench, long_job_id: int) -> None:
    job = probes.finished(long_job_id)
    assert (job.status, job.attempt, job.crashes) == (JobStatus.SUCCEEDED, 1, 0)
