from datetime import timedelta

import pytest

from core import clock
from core.errors import DomainError, Kind
from core.scopes import EVERYTHING_OF_A_USER
from models import JobStatus
from services.access.caller import Caller
from services.jobs import records
from services.jobs.lease import Lease
from services.jobs.transitions import fail_job, record_progress
from storage.resources import Resources
from tests.support.probe.bench import Bench
from tests.support.probe.job_states import claim_lease, update_job
from tests.support.probe.kind import plan


@pytest.fixture
def caller(quiet: Bench) -> Caller:
    user_id = quiet.stack.new_owner().user_id
    return Caller(user_id, EVERYTHING_OF_A_USER, unrestricted=True, key_id=0)


@pytest.fixture
def job_id(caller: Caller, resources: Resources) -> int:
    with resources.unit_of_work() as uow:
        return plan(uow, {}, user_id=caller.user_id).id


def test_failed_job_of_a_retryable_kind_starts_afresh(
    quiet: Bench, resources: Resources, caller: Caller, job_id: int
) -> None:
    update_job(resources, job_id, crashes=2)
    with resources.unit_of_work() as uow:
        fail_job(uow, claim_lease(resources, job_id), DomainError(Kind.INVALID, "x.y", "z"))
    with resources.unit_of_work() as uow:
        assert records.retry_own_job(uow, caller, job_id) == 1
    job = quiet.job(job_id)
    assert (job.status, job.error, job.finished_at) == (JobStatus.QUEUED, None, None)
    assert (job.crashes, job.retries, job.cancel_requested) == (0, 0, False)
    assert claim_lease(resources, job_id).attempt == 2


@pytest.mark.parametrize("is_begun", [False, True])
def test_job_that_has_not_ended_is_not_retryable(
    resources: Resources, caller: Caller, job_id: int, is_begun: bool
) -> None:
    if is_begun:
        claim_lease(resources, job_id)
    with pytest.raises(DomainError) as caught, resources.unit_of_work() as uow:
        records.retry_own_job(uow, caller, job_id)
    assert caught.value.code == "job.not_retryable"


def test_job_tells_its_rate_and_the_time_to_go(
    quiet: Bench, claimed: Lease, resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    with resources.unit_of_work() as uow:
        record_progress(uow, claimed, done=50, total=100)
    job = quiet.job(claimed.job_id)
    assert job.started_at is not None
    later = job.started_at + timedelta(seconds=5)
    monkeypatch.setattr(clock, "now", lambda: later)
    found = records.measure_progress(job)
    assert (found.done, found.total) == (50, 100)
    assert (found.per_second, found.eta_seconds) == (10.0, 5.0)
