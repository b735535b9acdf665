from datetime import timedelta

from sqlalchemy import func

from core.lanes import Lane
from models import Job
from services.jobs.kinds import JobKind
from storage.broker import Broker
from storage.unit_of_work import UnitOfWork

# The sweep sends a job again that no worker has claimed by then.
FIRST_RESEND = timedelta(seconds=2)


def enqueue(
    uow: UnitOfWork,
    kind: JobKind,
    *,
    user_id: int | None,
    subject_id: int | None = None,
    request_id: str | None = None,
    total: int | None = None,
) -> Job:
    """Write the job in the caller's transaction; it is sent once that has committed."""
    job = Job(
        kind=kind.name,
        lane=kind.lane,
        user_id=user_id,
        subject_id=subject_id,
        request_id=request_id,
        waiter=uow.waiter,
        progress_total=total,
        send_after=func.now() + FIRST_RESEND,
        sends=1,
    )
    uow.session.add(job)
    uow.session.flush()
    uow.after_commit(lambda: send(uow.broker, job))
    return job


def send(broker: Broker, job: Job) -> bool:
    """Send the job's id to its lane. An extra message is harmless: only one claim succeeds."""
    # Flower and the worker's log show this name.
    task_id = f"job-{job.id}-{job.attempt}-{job.sends}"
    return broker.send(job.kind, Lane(job.lane), {"job_id": job.id}, task_id=task_id)
