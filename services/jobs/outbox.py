"""Sends committed jobs to their queues, in turns between owners.

Workers process the messages of a queue in order, so one owner's messages delay the other owners.
Therefore a queue holds only a few messages per owner. The owner's other jobs wait as rows with
``sends`` 0, and each claim of a job sends the owner's next job. Even if one owner has a thousand
waiting jobs, a single job of another owner runs soon.
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

# If no worker claims a job within this time after the first send, the sweep sends the job again.
FIRST_RESEND_DELAY = timedelta(seconds=2)
# How many jobs of one owner are in a queue at the same time. A new job of another owner waits
# behind at most this many. Two suffice to keep all workers of a queue busy, because each claim of a
# job sends the owner's next job.
MAX_SENT_JOBS_OF_AN_OWNER = 2
# An unclaimed job that was sent more often no longer delays the owner's other jobs, because perhaps
# no worker knows the job's kind. This many sends take half a minute.
MAX_SENDS_IN_TURN = 4
# The frequent scans of the sweep find only jobs that became due within this time. Few jobs wait
# longer, because the sweep sends due jobs within seconds. Full scans find the remaining jobs.
RECENT_WINDOW = timedelta(seconds=30)


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
        on_behalf_of: the owner in whose turns the job runs. The default is ``user_id``.
        total: the amount of work in the job, in the unit of its progress.
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
    """Return the values of ``sends`` and ``send_after``, which decide whether a job is sent now."""
    other_job = aliased(Job)
    is_queued = other_job.status == JobStatus.QUEUED
    was_sent = other_job.sends.in_(range(1, MAX_SENDS_IN_TURN + 1))
    # The sweep keeps ``send_after`` of every sent job within this window.
    is_recent = other_job.send_after > func.now() - RECENT_WINDOW
    sent = select(other_job.id).where(
        is_queued, other_job.queue == queue, other_job.on_behalf_of == owner_id, was_sent, is_recent
    )
    must_wait = exists(sent.offset(MAX_SENT_JOBS_OF_AN_OWNER - 1))
    return {
        "sends": case((must_wait, 0), else_=1),
        "send_after": case((must_wait, func.now()), else_=func.now() + FIRST_RESEND_DELAY),
    }


def send_after_commit(uow: UnitOfWork, job: Job) -> None:
    """Send the job after the commit, unless the job waits for its owner's turn."""
    if job.sends:
        uow.after_commit(lambda: send_job(uow.broker, job))


def send_next_job(uow: UnitOfWork, claimed: Job) -> None:
    """Send the job that has waited longest in the queue, of the claimed job's owner.

    An owner's jobs are sent in the order of creation, so the search starts at the claimed job. The
    sweep sends the few jobs that this search misses.
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
        .values(sends=1, send_after=func.now() + FIRST_RESEND_DELAY)
        .returning(Job)
    )
    job = uow.session.scalar(statement)
    if job is not None:
        send_after_commit(uow, job)


def send_job(broker: "Broker", job: Job) -> bool:
    """Send the job's id to its queue. Duplicates are harmless, because only one claim succeeds."""
    # Flower and the worker's log show the task id.
    task_id = f"job-{job.id}-{job.attempt}-{job.sends}"
    return broker.send(job.kind, Queue(job.queue), {"job_id": job.id}, task_id=task_id)
