"""Sends jobs to their queues after the commit that queued them, in turns between owners.

Workers take a queue's messages in order, so one owner's messages delay the other owners.
Therefore a queue holds few messages per owner. The owner's other jobs stay rows with ``sends`` 0,
and each claim sends the next one. A thousand jobs of one owner and a single job of another owner
alternate.
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

# The sweep sends a job again if no worker claimed it by then.
FIRST_RESEND = timedelta(seconds=2)
# Another owner's job waits behind this many jobs. Each claim sends the next job, so two keep all
# workers of a queue busy: while a worker claims one, the other one is on its way.
MAX_SENT_JOBS_OF_AN_OWNER = 2
# After this many sends, half a minute has passed. Perhaps no worker knows the job's kind, so the
# owner's other jobs stop waiting for it.
MAX_SENDS_IN_TURN = 4
# Only a full scan of the sweep finds jobs that have been due for longer. There are few, because
# the sweep handles due jobs within seconds.
RECENT = timedelta(seconds=30)


def enqueue_job(
    uow: UnitOfWork,
    kind: JobKind,
    *,
    user_id: int | None,
    on_behalf_of: int | None = None,
    subject_id: int | None = None,
    total: int | None = None,
) -> Job:
    """Write the job in the caller's transaction, and send it after the commit.

    Args:
        user_id: the user who sees the job.
        on_behalf_of: the owner whose jobs this job takes turns with. Without it, ``user_id``.
        total: how much work the job has.
    """
    owner_id = on_behalf_of or user_id or 0
    job = Job(
        kind=kind.name,
        queue=kind.queue,
        user_id=user_id,
        on_behalf_of=owner_id,
        subject_id=subject_id,
        request_id=current_request_id(),
        traceparent=spans.current_traceparent(),
        waiter=uow.waiter,
        progress_total=total,
        **plan_turn(kind.queue, owner_id),
    )
    uow.session.add(job)
    uow.session.flush()
    send_after_commit(uow, job)
    return job


def plan_turn(queue: Any, owner_id: Any) -> dict[str, Any]:
    """Return the columns that say whether a job of this queue and owner is sent now, or waits."""
    other = aliased(Job)
    is_queued = other.status == JobStatus.QUEUED
    was_sent = other.sends.in_(range(1, MAX_SENDS_IN_TURN + 1))
    # The sweep keeps all sent jobs within this range.
    is_recent = other.send_after > func.now() - RECENT
    sent = select(other.id).where(
        is_queued, other.queue == queue, other.on_behalf_of == owner_id, was_sent, is_recent
    )
    must_wait = exists(sent.offset(MAX_SENT_JOBS_OF_AN_OWNER - 1))
    return {
        "sends": case((must_wait, 0), else_=1),
        "send_after": case((must_wait, func.now()), else_=func.now() + FIRST_RESEND),
    }


def send_after_commit(uow: UnitOfWork, job: Job) -> None:
    """Send the job after the commit, unless it has to wait for its turn."""
    if job.sends:
        uow.after_commit(lambda: send_job(uow.broker, job))


def send_next_job(uow: UnitOfWork, claimed: Job) -> None:
    """Send the job that has waited longest, of the claimed job's owner and queue.

    Jobs that the owner enqueued before the claimed one were sent before it. The search therefore
    starts at the claimed job. The sweep sends the few jobs that this search misses.
    """
    oldest = (
        select(Job.id)
        .where(
            Job.status == JobStatus.QUEUED,
            Job.sends == 0,
            Job.queue == claimed.queue,
            Job.on_behalf_of == claimed.on_behalf_of,
            Job.send_after.between(claimed.created_at, func.now()),
        )
        .order_by(Job.send_after)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    statement = (
        update(Job)
        .where(Job.id == oldest.scalar_subquery())
        .values(sends=1, send_after=func.now() + FIRST_RESEND)
        .returning(Job)
    )
    job = uow.session.scalar(statement)
    if job is not None:
        send_after_commit(uow, job)


def send_job(broker: "Broker", job: Job) -> bool:
    """Send the job's id to its queue. An extra message is harmless: only one claim succeeds."""
    # Flower and the worker's log show this name.
    task_id = f"job-{job.id}-{job.attempt}-{job.sends}"
    return broker.send(job.kind, Queue(job.queue), {"job_id": job.id}, task_id=task_id)
