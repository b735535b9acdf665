"""Sends jobs to their queues after the commit, and shares the workers fairly between owners.

Workers process the messages of a queue in order. A queue contains only a few messages per owner, so
that one owner's many jobs don't delay other owners. An owner's jobs above the limit wait in the
database with ``sends`` 0. When a worker claims an owner's job, the owner's next waiting job is
sent.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import case, exists, func, select, update
from sqlalchemy.orm import aliased

from core.ids import AccountId
from core.queues import Queue
from core.request_ids import current_request_id
from core.telemetry import spans
from models import Job, JobStatus
from services.jobs.kinds import JobKind
from storage.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from storage.broker import Broker

# How long the sweep waits for a worker to claim a job before it sends the job again.
FIRST_RESEND_DELAY = timedelta(seconds=2)
# The maximum number of jobs of one owner in a queue. Two queued jobs per owner are enough to keep
# workers busy, because the next job is sent as soon as a worker claims one of the two.
MAX_SENT_JOBS_OF_AN_OWNER = 2
# A job that was sent more than this many times without being claimed no longer counts towards its
# owner's limit. Perhaps no worker knows the job's kind. An unclaimed job is sent
# ``MAX_SENDS_IN_TURN`` times within half a minute.
MAX_SENDS_IN_TURN = 4
# The sweep's quick scan, which runs each second, finds only jobs that became due within
# ``RECENT_WINDOW``. The sweep sends due jobs within seconds, so the full scans find only a few jobs
# that have been due for longer.
RECENT_WINDOW = timedelta(seconds=30)


def enqueue_job(
    uow: UnitOfWork,
    kind: JobKind,
    *,
    account_id: AccountId | None,
    on_behalf_of: int | None = None,
    subject_id: int | None = None,
    key_id: int | None = None,
    total: int | None = None,
) -> Job:
    """Write a job in the caller's transaction, and send the job to its queue after the commit.

    Args:
        account_id: the account that can see the job, if any.
        on_behalf_of: the account or person whose share of the queue the job uses, by default
            ``account_id``.
        key_id: the limited API key that can see the job without the scope of its kind, if any.
        total: the total amount of work, in the same unit as the job's progress.
    """
    owner_id = on_behalf_of or account_id or 0
    job = Job(
        kind=kind.name,
        queue=kind.queue,
        user_id=account_id,
        on_behalf_of=owner_id,
        subject_id=subject_id,
        key_id=key_id,
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


def enqueue_spare_jobs(uow: UnitOfWork, kind: JobKind, *, subject_ids: Iterable[int]) -> list[int]:
    """Store jobs as a fallback, before the caller itself does the work of the jobs.

    After the commit, the caller must do the work of the jobs itself, in transactions that also
    delete the jobs. If the caller fails or is killed, the sweep sends the jobs after
    ``FIRST_RESEND_DELAY``.
    """
    jobs = [
        Job(
            kind=kind.name,
            queue=kind.queue,
            subject_id=subject_id,
            request_id=current_request_id(),
            traceparent=spans.current_traceparent(),
            send_after=func.now() + FIRST_RESEND_DELAY,
        )
        for subject_id in subject_ids
    ]
    uow.session.add_all(jobs)
    uow.session.flush()
    return [job.id for job in jobs]


def plan_turn(queue: Any, owner_id: Any) -> dict[str, Any]:
    other_job = aliased(Job)
    is_queued = other_job.status == JobStatus.QUEUED
    was_sent = other_job.sends.in_(range(1, MAX_SENDS_IN_TURN + 1))
    # The sweep updates ``send_after`` of each sent job, so ``send_after`` is never older than
    # ``RECENT_WINDOW``.
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
    if job.sends:
        uow.after_commit(lambda: send_job(uow.broker, job))


def send_next_job(uow: UnitOfWork, claimed: Job) -> None:
    """Send the owner's next waiting job.

    The next job has the earliest ``send_after`` since the creation of the claimed job. The sweep
    sends a job that this search misses.
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
    """Duplicate messages about a job are harmless, because only one worker can claim the job."""
    # The Celery task id appears in the monitoring tool Flower and in the worker's log.
    task_id = f"job-{job.id}-{job.attempt}-{job.sends}"
    return broker.send(job.kind, Queue(job.queue), {"job_id": job.id}, task_id=task_id)
