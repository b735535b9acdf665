"""Erases a person in the test's own process, unless a worker claims the job first."""

from dataclasses import dataclass

from core.errors import TransientError
from devstack.harness.polling import eventually
from models import FINISHED, Job, JobStatus
from services.jobs.lease import Lease
from services.jobs.transitions import claim_job, hand_back_job
from services.privacy import erasure
from storage.resources import Resources


@dataclass(frozen=True)
class Erased:
    user_id: int
    subscriptions: int
    opt_outs_kept: int
    lists: int
    attachments: int
    keys: int
    jobs: int


def erase(resources: Resources, email: str) -> Erased:
    return finish(resources, erasure.begin_erasure(resources, email))


def finish(resources: Resources, job_id: int) -> Erased:
    def find_ended_job() -> Job | None:
        lease = claim(resources, job_id)
        if lease is not None:
            take_turn(resources, lease)
        with resources.unit_of_work() as uow:
            job = uow.session.get_one(Job, job_id)
        return job if job.status in FINISHED else None

    job = eventually(find_ended_job, within=60, what="the end of the erasure")
    assert isinstance(job, Job)
    assert job.status == JobStatus.SUCCEEDED, job.error
    assert job.result is not None
    return Erased(**job.result)


def take_turn(resources: Resources, lease: Lease) -> None:
    """Run an erasure job until it ends or must be requeued, as a worker does."""
    try:
        erasure.run_erasure(resources, lease)
    except TransientError:
        with resources.unit_of_work() as uow:
            hand_back_job(uow, lease)


def claim(resources: Resources, job_id: int) -> Lease | None:
    with resources.unit_of_work() as uow:
        return claim_job(uow, job_id)
