"""Helpers that claim a job, change a job's row, or list the jobs in a queue."""

from sqlalchemy import update

from models import Job
from services.jobs.lease import Lease
from services.jobs.transitions import claim_job
from storage.resources import Resources


def claim_lease(resources: Resources, job_id: int) -> Lease:
    with resources.unit_of_work() as uow:
        lease = claim_job(uow, job_id)
    assert lease is not None
    return lease


def update_job(resources: Resources, job_id: int, **values: object) -> None:
    with resources.unit_of_work() as uow:
        uow.session.execute(update(Job).where(Job.id == job_id).values(**values))
