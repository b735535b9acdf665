"""Sends jobs to their queues: after the commit that queues them, and in turns between owners.

Workers take a queue's messages in order, so what an owner has there is what other owners wait for.
A queue holds few messages of one owner. The owner's other jobs stay rows with ``sends`` 0, of which
a claim sends the next one: a thousand jobs of one owner and the single job of another alternate.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import case, exists, func, select, update
from sqlalchemy.orm import aliased

from core.queues import Queue
from core.request_ids import current_request_id
from core.telemetry import spans
from models import Job, JobStatus
from services.jobs.kinds import JobKind
from storage.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from storage.broker import Broker

# The sweep sends a job again that no worker has claimed by then.
FIRST_RESEND = timedelta(seconds=2)
# Another owner's job waits for each of them. The next one is sent as soon as one is claimed, so two
# keep all workers of a queue busy: one is claimed while the other is on its way.
MAX_SENT_JOBS_OF_AN_OWNER = 2
# No worker has claimed the job in half a minute, perhaps since none knows its kind: the owner's
# other jobs don't wait for it any longer.
MAX_SENDS_IN_TURN = 4
# A job that was due for longer is found by a whole look alone (``pace``). Little is: a sweep deals
# with what is due within seconds.
RECENT = timedelta(seconds=30)


def enqueue(
    uow: UnitOfWork,
    kind: JobKind,
    *,
    user_id: int | None,
    on_behalf_of: int | None = None,
    subject_id: int | None = None,
    total: int | None = None,
) -> Job:
    """Write the job in the caller's transaction; it is sent once that has committed.

    The job takes turns with those of other users: as a job of ``on_behalf_of``, or without it of
    the user who sees the job.
    """
    owner_id = on_behalf_of or user_id or 0
    job = Job(
        kind=kind.name,
        queue=kind.queue,
        user_id=user_id,
        on_behalf_of=owner_id,
        subject_id=subject_id,
        request_id=current_request_id(),
        traceparent=spans.traceparent(),
        waiter=uow.waiter,
        progress_total=total,
        **in_turn(kind.queue, owner_id),
    )
    uow.session.add(job)
    uow.session.flush()
    send_in_turn(uow, job)
    return job


def in_turn(queue: Any, owner_id: Any) -> dict[str, Any]:
    """Return what a job of this queue and owner is queued with: it is sent now, or has to wait."""
    other = aliased(Job)
    of_owner = other.queue == queue, other.on_behalf_of == owner_id
    was_sent = other.sends.in_(range(1, MAX_SENDS_IN_TURN + 1))
    # The sweep keeps all of them among these.
    is_recent = other.send_after > func.now() - RECENT
    queued = select(other.id).where(other.status == JobStatus.QUEUED, *of_owner)
    sent = queued.where(was_sent, is_recent)
    must_wait = exists(sent.offset(MAX_SENT_JOBS_OF_AN_OWNER - 1))
    return {
        "sends": case((must_wait, 0), else_=1),
        "send_after": case((must_wait, func.now()), else_=func.now() + FIRST_RESEND),
    }


def send_in_turn(uow: UnitOfWork, job: Job) -> None:
    """Send the job after the commit, unless it was queued to wait."""
    if job.sends:
        uow.after_commit(lambda: send(uow.broker, job))


def send_next(uow: UnitOfWork, claimed: Job) -> None:
    """Send the job that has waited longest of those that the owner of the claimed one has.

    Jobs that the owner asked for before the claimed one were sent before it, so the look begins
    there; the sweep sends the few jobs that this passes over.
    """
    waits = Job.status == JobStatus.QUEUED, Job.sends == 0
    alike = Job.queue == claimed.queue, Job.on_behalf_of == claimed.on_behalf_of
    since = Job.send_after.between(claimed.created_at, func.now())
    oldest = select(Job.id).where(*waits, *alike, since).order_by(Job.send_after).limit(1)
    its_turn = update(Job).where(
        Job.id == oldest.with_for_update(skip_locked=True).scalar_subquery()
    )
    sent = its_turn.values(sends=1, send_after=func.now() + FIRST_RESEND)
    job = uow.session.scalar(sent.returning(Job))
    if job is not None:
        send_in_turn(uow, job)


def send(broker: "Broker", job: Job) -> bool:
    """Send the job's id to its queue. An extra message is harmless: only one claim succeeds."""
    # Flower and the worker's log show this name.
    task_id = f"job-{job.id}-{job.attempt}-{job.sends}"
    return broker.send(job.kind, Queue(job.queue), {"job_id": job.id}, task_id=task_id)
