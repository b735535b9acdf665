"""Tests of the retry of a failed job by its owner, and of the progress of a running job."""

from datetime import timedelta

import pytest

from core import clock
from core.errors import DomainError, Kind
from core.ids import AccountId, PersonId
from core.scopes import USER_SCOPES
from models import JobStatus
from services.access.caller import Caller
from services.jobs import records
from services.jobs.lease import Lease
from services.jobs.transitions import fail_job, record_progress
from storage.resources import Resources
from tests.support.probe.bench import Bench
from tests.support.probe.job_states import claim_lease, update_job
from tests.support.probe.kind import enqueue_probe


@pytest.fixture
def job_owner(probes_without_workers: Bench) -> Caller:
    user_id = probes_without_workers.stack.create_owner().user_id
    return Caller(AccountId(user_id), PersonId(user_id), USER_SCOPES, unrestricted=True, key_id=0)


@pytest.fixture
def owned_job_id(job_owner: Caller, resources: Resources) -> int:
    with resources.unit_of_work() as uow:
        return enqueue_probe(uow, {}, account_id=job_owner.account_id).id


def test_retried_failed_job_restarts_with_its_counters_reset(
    probes_without_workers: Bench, resources: Resources, job_owner: Caller, owned_job_id: int
) -> None:
    update_job(resources, owned_job_id, crashes=2)
    with resources.unit_of_work() as uow:
        fail_job(uow, claim_lease(resources, owned_job_id), DomainError(Kind.INVALID, "x.y", "z"))
    with resources.unit_of_work() as uow:
        assert records.retry_own_job(uow, job_owner, owned_job_id) == 1
    job = probes_without_workers.job(owned_job_id)
    assert (job.status, job.error, job.finished_at) == (JobStatus.QUEUED, None, None)
    assert (job.crashes, job.retries, job.cancel_requested) == (0, 0, False)
    assert claim_lease(resources, owned_job_id).attempt == 2


@pytest.mark.parametrize("is_begun", [False, True])
def test_unfinished_job_is_not_retryable(
    resources: Resources, job_owner: Caller, owned_job_id: int, is_begun: bool
) -> None:
    if is_begun:
        claim_lease(resources, owned_job_id)
    with pytest.raises(DomainError) as error, resources.unit_of_work() as uow:
        records.retry_own_job(uow, job_owner, owned_job_id)
    assert error.value.code == "job.not_retryable"


def test_job_progress_reports_its_rate_and_remaining_time(
    probes_without_workers: Bench,
    lease: Lease,
    resources: Resources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with resources.unit_of_work() as uow:
        record_progress(uow, lease, done=50, total=100)
    job = probes_without_workers.job(lease.job_id)
    assert job.started_at is not None
    later = job.started_at + timedelta(seconds=5)
    monkeypatch.setattr(clock, "now", lambda: later)
    progress = records.measure_progress(job)
    assert (progress.done, progress.total) == (50, 100)
    assert (progress.per_second, progress.eta_seconds) == (10.0, 5.0)
